package main

import (
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ID is a segment's id: its epoch << 32 | its number.
type ID uint64

func (id ID) String() string { return fmt.Sprintf("%d.#epoch.%d", uint32(id), id>>32) }

type keys struct {
	ID   ID      `json:"id"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func (one keys) meets(low, high float64) bool { return max(one.Low, low) < min(one.High, high) }

type part struct {
	Name   string `json:"name"`
	Start  uint64 `json:"start"`
	End    uint64 `json:"end"`
	Sealed bool   `json:"sealed"`
	Events uint64 `json:"events"`
	Bytes  uint64 `json:"bytes"`
	Digest digest `json:"digest"`
}

// Manifest is that of a generation.
type Manifest struct {
	Format        uint32    `json:"format"`
	Generation    uint32    `json:"generation"`
	Created       time.Time `json:"created"`
	Scope         string    `json:"scope"`
	Stream        string    `json:"stream"`
	Line          *string   `json:"line" may:"lack"`
	Layout        string    `json:"layout"`
	Compression   string    `json:"compression"`
	Content       string    `json:"content" may:"lack"`
	RangeSize     uint64    `json:"range_size"`
	Sealed        bool      `json:"sealed"`
	Events        uint64    `json:"events"`
	Bytes         uint64    `json:"bytes"`
	Configuration struct {
		Scaling struct {
			Kind     string `json:"kind"`
			Target   uint64 `json:"target"`
			Factor   uint64 `json:"factor"`
			Segments uint64 `json:"min_segments"`
		} `json:"scaling"`
		Retention struct {
			Kind    string `json:"kind"`
			Minimum uint64 `json:"minimum"`
			Maximum uint64 `json:"maximum"`
		} `json:"retention"`
		Tags []string `json:"tags"`
	} `json:"configuration"`
	Epochs []struct {
		Epoch    uint32 `json:"epoch"`
		Segments []keys `json:"segments"`
	} `json:"epochs"`
	From     map[string]uint64 `json:"from"`
	To       map[string]uint64 `json:"to"`
	Segments []part            `json:"segments"`
	Gaps     []struct {
		Segment string `json:"segment"`
		Start   uint64 `json:"start"`
		End     uint64 `json:"end"`
		Reason  string `json:"reason"`
	} `json:"gaps"`
	Index struct {
		Bytes  int64  `json:"bytes"`
		Digest digest `json:"digest"`
	} `json:"index"`
	Replaces []struct {
		Generation uint32            `json:"generation"`
		To         map[string]uint64 `json:"to"`
		Epochs     int               `json:"epochs"`
	} `json:"replaces" may:"lack"`
	Witness []struct {
		Segment string `json:"segment"`
		Offset  uint64 `json:"offset"`
		Length  uint64 `json:"length"`
		Digest  digest `json:"digest"`
	} `json:"witness" may:"lack"`
	fingerprint string
	rows        map[ID][]*Row
}

func (one *Manifest) first() uint32 {
	if len(one.Replaces) > 0 {
		return one.Replaces[0].Generation
	}
	return one.Generation
}

// Archive is the generations in force, which are read and agree with each other.
type Archive struct {
	folder, stream, line string
	generations          []*Manifest
}

func open(folder string) *Archive {
	scope := filepath.Dir(folder)
	archive := &Archive{folder: folder, stream: filepath.Base(scope) + "/" + filepath.Base(folder)}
	if line, isLine := strings.CutPrefix(filepath.Base(filepath.Dir(scope)), "_line-"); isLine {
		archive.line = line
	}
	for _, one := range archive.inForce() {
		found := archive.manifest(one)
		if count := len(archive.generations); count > 0 {
			before := archive.generations[count-1]
			follows := maps.Equal(found.From, before.To) && found.Content == before.Content && len(found.Epochs) >= len(before.Epochs)
			follows = follows && reflect.DeepEqual(found.Epochs[:len(before.Epochs)], before.Epochs)
			need(follows, "generation %d does not follow from the one before it", found.Generation)
		}
		archive.generations = append(archive.generations, found)
	}
	return archive
}

func (archive *Archive) segments() (found []ID) {
	for _, one := range archive.generations {
		found = slices.AppendSeq(found, maps.Keys(one.rows))
	}
	slices.Sort(found)
	return slices.Compact(found)
}

var fullName = regexp.MustCompile(`^(.*)/(0|[1-9][0-9]*)\.#epoch\.(0|[1-9][0-9]*)$`)

func (archive *Archive) id(name string) ID {
	found := fullName.FindStringSubmatch(name)
	need(found != nil && found[1] == archive.stream, "%s is no segment of the stream", name)
	number, wrong := strconv.ParseUint(found[2], 10, 31)
	epoch, also := strconv.ParseUint(found[3], 10, 31)
	need(wrong == nil && also == nil, "%s is no segment", name)
	return ID(epoch<<32 | number)
}

func (archive *Archive) manifest(wanted span) *Manifest {
	found := &Manifest{Content: "events"}
	key := wanted.stem() + ".json"
	found.fingerprint = digestOf(archive.file(key, found))
	isOurs := found.Scope+"/"+found.Stream == archive.stream && found.Generation == wanted.Generation && found.first() == wanted.First
	need(isOurs && (found.Line == nil || *found.Line == archive.line), "%s is of another archive or generation", key)
	need(found.Format == 1 && slices.Contains([]string{"events", "bytes"}, found.Content), "%s: format or content", key)
	stored := found.Layout + " " + found.Compression
	need(stored == "chunks " || stored == "chunks zstd" || stored == "events " && found.Content == "events", "%s: %s", key, stored)
	scaling, retention := found.Configuration.Scaling.Kind, found.Configuration.Retention.Kind
	need(slices.Contains([]string{"fixed", "events", "kbytes"}, scaling), "%s: scaling %s", key, scaling)
	need(slices.Contains([]string{"none", "time", "size"}, retention), "%s: retention %s", key, retention)
	for at, one := range found.Replaces {
		isLast := at == len(found.Replaces)-1
		right := one.Generation == wanted.First+uint32(at) && one.Epochs <= len(found.Epochs) && len(found.Replaces) > 1
		need(right && (!isLast || one.Generation == wanted.Generation && maps.Equal(one.To, found.To)), "%s: replaces", key)
	}
	all, last := archive.epochs(found, key), map[ID]bool{}
	for _, one := range found.Epochs[len(found.Epochs)-1].Segments {
		last[one.ID] = true
	}
	archive.between(found, all, last, key)
	archive.index(found, wanted.stem()+".ranges.parquet")
	return found
}

// Checks the epochs, and returns the keys of each segment.
func (archive *Archive) epochs(found *Manifest, key string) map[ID]keys {
	all := map[ID]keys{}
	need(len(found.Epochs) > 0, "%s has no epochs", key)
	for number, epoch := range found.Epochs {
		at, seen := 0.0, map[ID]bool{}
		for _, one := range slices.SortedFunc(slices.Values(epoch.Segments), func(a, b keys) int { return int(math.Copysign(1, a.Low-b.Low)) }) {
			known, there := all[one.ID]
			right := one.Low == at && one.High > at && !seen[one.ID] && int(one.ID>>32) <= number && (!there || known == one)
			need(right && int(epoch.Epoch) == number, "%s: epoch %d", key, number)
			at, seen[one.ID], all[one.ID] = one.High, true, one
		}
		need(1-1e-12 < at && at <= 1, "%s: epoch %d does not hold all keys", key, number)
	}
	return all
}

// Checks the cuts, and that the segments between them are there, each with its bounds.
func (archive *Archive) between(found *Manifest, all map[ID]keys, last map[ID]bool, key string) {
	cut := func(offsets map[string]uint64) (cut map[ID]uint64) {
		cut = map[ID]uint64{}
		for name, offset := range offsets {
			_, known := all[archive.id(name)]
			need(known, "%s has a cut at %s, which is in no epoch", key, name)
			cut[archive.id(name)] = offset
		}
		return cut
	}
	from, to := cut(found.From), cut(found.To)
	wanted := []ID{}
	for id, held := range all {
		for first := range from {
			for end := range to {
				low, high := max(all[first].Low, held.Low), min(all[first].High, held.High)
				if all[end].meets(low, high) && low < high && first>>32 <= id>>32 && id>>32 <= end>>32 && !slices.Contains(wanted, id) {
					wanted = append(wanted, id)
				}
			}
		}
	}
	slices.Sort(wanted)
	need(len(wanted) == len(found.Segments), "%s has other segments than are between its cuts", key)
	var events, size uint64
	for at, one := range found.Segments {
		id := archive.id(one.Name)
		start := from[id]
		end, ends := to[id]
		right := id == wanted[at] && one.Start == start && one.Start <= one.End && (!ends || one.End == end)
		need(right && one.Sealed == (!last[id] || found.Sealed), "%s: the entry of %s", key, one.Name)
		events, size = events+one.Events, size+one.Bytes
	}
	need(events == found.Events && size == found.Bytes, "%s has other totals", key)
	for _, one := range found.Witness {
		end, there := found.To[one.Segment]
		need(there && one.Offset+one.Length == end, "%s: the witness of %s", key, one.Segment)
	}
}

// Checks that ranges and gaps are each segment's entry.
func (archive *Archive) crossCheck(found *Manifest, key string) {
	entries := map[ID]bool{}
	for _, entry := range found.Segments {
		id := archive.id(entry.Name)
		pieces, digests, events, size := [][2]uint64{}, []byte{}, uint64(0), uint64(0)
		for _, row := range found.rows[id] {
			raw, _ := hex.DecodeString(row.digest)
			pieces, digests = append(pieces, [2]uint64{row.start, row.end}), append(digests, raw...)
			events, size = events+row.events, size+row.end-row.start
			need((row.events == 0) == (found.Content == "bytes"), "%s: a range of %s has other content", key, entry.Name)
		}
		for _, gap := range found.Gaps {
			if gap.Segment == entry.Name && gap.Start < gap.End {
				pieces = append(pieces, [2]uint64{gap.Start, gap.End})
			}
		}
		slices.SortFunc(pieces, func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
		at := entry.Start
		for _, piece := range pieces {
			need(piece[0] == at, "%s: ranges and gaps of %s are not contiguous at %d", key, entry.Name, at)
			at = piece[1]
		}
		right := at == entry.End && events == entry.Events && size == entry.Bytes && digestOf(digests) == string(entry.Digest)
		need(right, "%s and the manifest do not agree on %s", key, entry.Name)
		entries[id] = true
	}
	for id := range found.rows {
		need(entries[id], "%s has ranges of %s, which the manifest does not have", key, id)
	}
	for _, gap := range found.Gaps {
		inside := func(one part) bool { return one.Name == gap.Segment && one.Start <= gap.Start && gap.End <= one.End }
		need(gap.Start <= gap.End && slices.ContainsFunc(found.Segments, inside), "%s: a gap of %s is outside", key, gap.Segment)
	}
}
