package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/go-json-experiment/json" // rejects names that are there twice, and text that is not UTF-8
)

type digest string

func (one *digest) UnmarshalText(text []byte) error {
	*one = digest(text)
	need(len(text) == 64 && strings.Trim(string(text), "0123456789abcdef") == "", "%q is not a digest", text)
	return nil
}

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
	var plain any
	var version struct {
		Format   any      `json:"format"`
		Features []string `json:"features"`
	}
	need(json.Unmarshal(data, &plain) == nil, "%s is not valid JSON", key)
	_, isDecision := into.(*Decision)
	json.Unmarshal(data, &version)
	_, isManifest := into.(*Manifest)
	format, isNumber := version.Format.(float64)
	isKnown := format == 1 && !isManifest || format == 2 && (isDecision || isManifest)
	if isNumber && !isKnown || version.Features != nil {
		panic(failure{"reject", key + " is of a version, or has a feature, that this reader does not know"})
	}
	err := json.Unmarshal(data, into)
	need(err == nil, "%s is not valid: %v", key, err)
	complete(plain, reflect.TypeOf(into), key)
	seal := []byte(` "sha256": "`)
	at := bytes.LastIndex(data, seal) + len(seal)
	need(at >= len(seal) && len(data) >= at+64, "%s has no digest of its own", key)
	zeros := []byte(strings.Repeat("0", 64))
	need(digestOf(data[:at], zeros, data[at+64:]) == string(data[at:at+64]), "%s was changed", key)
	return data
}

// Checks that a JSON value has all members of a type but the optional ones; only pointers may be null.
func complete(value any, kind reflect.Type, name string) {
	switch {
	case kind.Kind() == reflect.Pointer && value != nil:
		complete(value, kind.Elem(), name)
	case kind.Kind() == reflect.Slice && value != nil:
		for _, one := range value.([]any) {
			complete(one, kind.Elem(), name)
		}
	case kind.Kind() == reflect.Struct && kind != reflect.TypeFor[time.Time]():
		for at := range kind.NumField() {
			field := kind.Field(at)
			member := field.Tag.Get("json")
			if member == "" {
				continue
			}
			held, there := value.(map[string]any)[member]
			need(there || field.Tag.Get("may") == "lack", "%s lacks %s", name, member)
			need(!there || held != nil || field.Type.Kind() == reflect.Pointer, "%s has null for %s", name, member)
			if there {
				complete(held, field.Type, name+" "+member)
			}
		}
	}
}
