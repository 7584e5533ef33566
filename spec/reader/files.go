package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext" // rejects names that are there twice, and text that is not UTF-8
)

func newDigest() hash.Hash                { return sha256.New() }
func hexadecimal(digest hash.Hash) string { return hex.EncodeToString(digest.Sum(nil)) }

func digestOf(data ...[]byte) string {
	digest := newDigest()
	for _, part := range data {
		digest.Write(part)
	}
	return hexadecimal(digest)
}

// The keys below a folder, in order. Links, and files that are being written, are no objects.
func (archive *Archive) list(below string) (keys []string) {
	filepath.WalkDir(filepath.Join(archive.folder, below), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && !strings.Contains(entry.Name(), "#") {
			keys = append(keys, strings.TrimPrefix(path, archive.folder+"/"))
		}
		return nil
	})
	sort.Strings(keys)
	return keys
}

func (archive *Archive) get(key string, most int64) []byte {
	path := filepath.Join(archive.folder, key)
	about, err := os.Lstat(path)
	need(err == nil && about.Mode().IsRegular(), "%s is missing", key)
	need(about.Size() <= most, "%s is too large", key)
	data, err := os.ReadFile(path)
	need(err == nil, "%s cannot be read: %v", key, err)
	return data
}

// Reads a JSON file of the archive: its version, its own digest, and each member that has to be there.
func (archive *Archive) file(key string, into any) []byte {
	data := archive.get(key, 64<<20)
	values := bytes.Count(data, []byte(",")) + bytes.Count(data, []byte("[")) + bytes.Count(data, []byte("{"))
	need(values <= 3_000_000, "%s has too many values", key)
	var version struct {
		Format   any      `json:"format"`
		Features []string `json:"features"`
	}
	need(jsontext.Value(data).IsValid(), "%s is not valid JSON", key)
	_, isDecision := into.(*Decision)
	json.Unmarshal(data, &version)
	_, isManifest := into.(*Manifest)
	format, isNumber := version.Format.(float64)
	isOld := isManifest && bytes.Contains(data, []byte(`"epochs"`)) // otherwise it is another file in place of a manifest
	isKnown := format == 1 && !isOld || format == 2 && (isDecision || isManifest)
	if isNumber && !isKnown || len(version.Features) > 0 {
		panic(failure{"reject", key + " is of a version, or has a feature, that this reader does not know"})
	}
	archive.check(data, strings.ToLower(reflect.TypeOf(into).Elem().Name()), key)
	need(json.Unmarshal(data, into) == nil, "%s is not valid", key)
	seal := []byte(` "sha256": "`)
	at := bytes.LastIndex(data, seal) + len(seal)
	need(at >= len(seal) && len(data) >= at+64, "%s has no digest of its own", key)
	zeros := []byte(strings.Repeat("0", 64))
	need(digestOf(data[:at], zeros, data[at+64:]) == string(data[at:at+64]), "%s was changed", key)
	return data
}

// The members of objects: ? may be absent, ~ may be null, [] is an array; with bounds of integers, and of the lengths of texts.
var tables = map[string]string{
	"manifest": `format:int generation:int=1,2147483647 created:time scope:text stream:text line?:text layout:events|chunks compression:zstd|
		content?:events|bytes configuration:configuration epochs:[]text from:cut to:cut segments:[]segment gaps:[]gap events:int bytes:int range_size:int=1
		sealed:bool before?:before index:index replaces?:[]replaced witness?:[]witness reader_groups?:[]group schemas?:schemas features?:[]text
		source:text=0,4096 tool:text=0,200`,
	"configuration": "scaling:scaling retention:retention tags:[]text rollover_bytes?:int timestamp_aggregation_timeout?:int",
	"scaling":       "kind:fixed|events|kbytes target:int factor:int min_segments:int=1",
	"retention":     "kind:none|time|size minimum:int maximum:int",
	"segment":       "name:text start:int end:int sealed:bool events:int bytes:int digest:digest",
	"gap":           "segment:text start:int end:int reason:text=0,1000",
	"before":        "events?:int bytes?:int gap_bytes?:int",
	"index":         "bytes:int digest:digest",
	"replaced": `generation:int=1,2147483647 created:time to:cut epochs:int=1 configuration:configuration sealed:bool events:int bytes:int
		reader_groups?:[]group`,
	"witness": "segment:text offset:int length:int=1,1048576 digest:digest",
	"group": `name:text=1,255 position?:cut~ problem?:text=0,1000 id?:uuid start?:cut~ end?:cut~ refresh_millis?:int=-1 checkpoint_millis?:int=-1
		most_checkpoints?:int=-1 retention?:int=-1`,
	"schemas": "group:text=1,1000 entries:[]entry unused?:[]schema settings?:text=0,1048576",
	"schema":  "type:text=0,1000 format:text=1,100 version:int=0,2147483647 data:base64=0,1048576",
	"entry": `type:text=0,1000 format:text=1,100 version:int=0,2147483647 data:base64=0,1048576 encoding:int=0,2147483647
		codec:text=0,100`,
	"decision": `format:int scope:text stream:text number:int created:time who?:text=0,1000 dropped:int=0,2147483646 swept:int begin?:cut~
		dropped_created?:time~ empty?:bool merged:[]merge holds:[]hold released?:[]hold deletion?:|begun|decided|done`,
	"merge": "generation:int=1,2147483647 first:int=1,2147483647 at:time grace:number=0,1000000000",
	"hold":  "generation:int=1,2147483647 name:name who:text=0,1000 why:text=0,1000 created:time",
	"noted": "format:int scope:text stream:text generation:int created:time tool:text=0,1000 digest:digest ranges:[]text",
}

var forms = map[string]*regexp.Regexp{
	"text":   regexp.MustCompile(""),
	"digest": regexp.MustCompile(`^[0-9a-f]{64}$`),
	"name":   regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`),
	"uuid":   regexp.MustCompile(`^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?$`),
	"base64": regexp.MustCompile(`^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`),
	"time":   regexp.MustCompile(`^(19[7-9]|2[0-9]{2})[0-9]-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`),
}

// Checks that a JSON value is of a type.
func (archive *Archive) check(value jsontext.Value, kind, name string) {
	kind, bounds, _ := strings.Cut(kind, "=")
	size, low, high := 0.0, 0.0, float64(math.MaxInt64)
	fmt.Sscanf(bounds, "%g,%g", &low, &high)
	right, list, members, text := kind == "bool", []jsontext.Value{}, map[string]jsontext.Value{}, ""
	switch value.Kind() {
	case 'n':
		right = strings.HasSuffix(kind, "~")
	case '[':
		json.Unmarshal(value, &list)
		element, isArray := strings.CutPrefix(kind, "[]")
		for right = isArray; right && len(list) > 0; list = list[1:] {
			archive.check(list[0], element, name)
		}
	case '{':
		json.Unmarshal(value, &members)
		isCut := strings.HasPrefix(kind, "cut")
		right = tables[kind] != "" || isCut && len(members) > 0
		for segment := range members {
			if isCut {
				archive.id(segment)
				archive.check(members[segment], "int", name)
			}
		}
		for _, member := range strings.Fields(tables[kind]) {
			of, kind, _ := strings.Cut(member, ":")
			of, optional := strings.CutSuffix(of, "?")
			if members[of] != nil {
				archive.check(members[of], kind, name+" "+of)
			}
			need(members[of] != nil || optional, "%s lacks %s", name, of)
		}
	case '"':
		json.Unmarshal(value, &text)
		size, kind = float64(utf8.RuneCountInString(text)), strings.TrimSuffix(kind, "~")
		_, err := time.Parse(time.RFC3339, text)
		right = forms[kind] != nil && forms[kind].MatchString(text) && (kind != "time" || err == nil)
		right = right || strings.Contains(kind, "|") && slices.Contains(strings.Split(kind, "|"), text)
	case '0':
		_, err := strconv.ParseInt(string(value), 10, 64)
		size, _ = strconv.ParseFloat(string(value), 64)
		right = kind == "number" || kind == "int" && err == nil
	}
	need(right && (kind != "int" && bounds == "" || low <= size && size <= high), "%s is not valid: %.99s", name, value)
}
