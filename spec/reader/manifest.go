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
)

// ID is a segment's id: its epoch << 32 | its number.
type ID uint64

func (id ID) String() string { return fmt.Sprintf("%d.#epoch.%d", uint32(id), id>>32) }

type keys struct {
	id        ID
	low, high float64
}

// What an epoch seals and opens, each in order of the keys.
type change struct{ seals, opens []keys }

func (one keys) meets(low, high float64) bool { return max(one.low, low) < min(one.high, high) }

type part struct {
	Name   string `json:"name"`
	Start  uint64 `json:"start"`
	End    uint64 `json:"end"`
	Sealed bool   `json:"sealed"`
	Events uint64 `json:"events"`
	Bytes  uint64 `json:"bytes"`
	Digest string `json:"digest"`
}

type place struct {
	Segment string `json:"segment"`
	Start   uint64 `json:"start"`
	End     uint64 `json:"end"`
	Offset  uint64 `json:"offset"`
	Length  uint64 `json:"length"`
}

// Manifest is that of a generation.
type Manifest struct {
	Format      uint32            `json:"format"`
	Generation  uint32            `json:"generation"`
	Scope       string            `json:"scope"`
	Stream      string            `json:"stream"`
	Line        *string           `json:"line"`
	Layout      string            `json:"layout"`
	Compression string            `json:"compression"`
	Content     string            `json:"content"`
	Events      uint64            `json:"events"`
	Bytes       uint64            `json:"bytes"`
	Epochs      []string          `json:"epochs"`
	From        map[string]uint64 `json:"from"`
	To          map[string]uint64 `json:"to"`
	Segments    []part            `json:"segments"`
	Gaps        []place           `json:"gaps"`
	Index       struct {
		Bytes  int64  `json:"bytes"`
		Digest string `json:"digest"`
	} `json:"index"`
	Replaces []struct {
		Generation uint32            `json:"generation"`
		To         map[string]uint64 `json:"to"`
		Epochs     int               `json:"epochs"`
	} `json:"replaces"`
	Witness     []place `json:"witness"`
	history     []change
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
			follows := maps.Equal(found.From, before.To) && found.Content == before.Content && len(found.history) >= len(before.history)
			follows = follows && reflect.DeepEqual(found.history[:len(before.history)], before.history)
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
	need(isOurs && found.Format == 2 && (found.Line == nil || *found.Line == archive.line), "%s is of another archive or generation", key)
	stored := found.Layout + " " + found.Compression
	need(stored == "chunks " || stored == "chunks zstd" || stored == "events " && found.Content == "events", "%s: %s", key, stored)
	for at, one := range found.Replaces {
		isLast := at == len(found.Replaces)-1
		right := one.Generation == wanted.First+uint32(at) && one.Epochs <= len(found.Epochs) && len(found.Replaces) > 1
		need(right && (!isLast || one.Generation == wanted.Generation && maps.Equal(one.To, found.To)), "%s: replaces", key)
	}
	all, last := found.epochs(key)
	archive.between(found, all, last, key)
	archive.index(found, wanted.stem()+".ranges.parquet")
	return found
}

const slack = 1e-12

var epochText = regexp.MustCompile(`^(?:(0|[1-9][0-9]*)\.)?(0|[1-9][0-9]*)(?::([0-9](?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?))?$`)

// Reads what each epoch seals and opens; returns the keys of each segment, and which ones are open in the last epoch.
func (found *Manifest) epochs(key string) (all map[ID]keys, open map[ID]bool) {
	all, open = map[ID]keys{}, map[ID]bool{}
	need(len(found.Epochs) > 0, "%s has no epochs", key)
	top := 1.0 // where the segment ends that has the highest keys
	for number, text := range found.Epochs {
		sealed, opened, right := strings.Cut(text, ">")
		need(right && len(all) <= 1_000_000, "%s: epoch %d", key, number)
		one := change{}
		for _, name := range pieces(sealed) {
			parts := epochText.FindStringSubmatch(name)
			need(parts != nil && parts[1] != "" && parts[3] == "", "%s: epoch %d seals %q", key, number, name)
			id := idOf(parts, 0)
			need(open[id], "%s: epoch %d seals %s, which is not open", key, number, id)
			one.seals = append(one.seals, all[id])
			delete(open, id)
		}
		slices.SortFunc(one.seals, func(a, b keys) int { return int(math.Copysign(1, a.low-b.low)) })
		left := one.seals
		if number == 0 {
			left = []keys{{0, 0, 1}}
		}
		before, low := joined(left), 0.0
		for _, name := range pieces(opened) {
			parts := epochText.FindStringSubmatch(name)
			need(parts != nil, "%s: epoch %d opens %q", key, number, name)
			for len(left) > 0 && left[0].high <= low {
				left = left[1:]
			}
			high := low
			if len(left) > 0 {
				low, high = max(low, left[0].low), left[0].high
			}
			if parts[3] != "" {
				high, _ = strconv.ParseFloat(parts[3], 64)
			}
			held := keys{idOf(parts, number), low, high}
			_, known := all[held.id]
			need(!known && int(held.id>>32) <= number && low < high && high <= 1, "%s: epoch %d opens %q", key, number, name)
			all[held.id], open[held.id], low = held, true, high
			one.opens = append(one.opens, held)
		}
		after := joined(one.opens)
		if len(before) > 0 && len(after) > 0 && before[len(before)-1].high == top && after[len(after)-1].high > 1-slack {
			top = after[len(after)-1].high
			before[len(before)-1].high = top
		}
		need(slices.Equal(before, after), "%s: epoch %d opens other keys than it seals", key, number)
		found.history = append(found.history, one)
	}
	return all, open
}

func pieces(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func idOf(parts []string, epoch int) ID {
	number, wrong := strconv.ParseUint(parts[2], 10, 31)
	created, also := uint64(epoch), error(nil)
	if parts[1] != "" {
		created, also = strconv.ParseUint(parts[1], 10, 31)
	}
	need(wrong == nil && also == nil, "%s is no segment", parts[0])
	return ID(created<<32 | number)
}

// Returns ranges of keys without their segments, those joined that follow each other without a hole.
func joined(ranges []keys) (found []keys) {
	for _, one := range ranges {
		if last := len(found) - 1; last >= 0 && found[last].high == one.low {
			found[last].high = one.high
		} else {
			found = append(found, keys{0, one.low, one.high})
		}
	}
	return found
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
	for _, one := range []map[ID]uint64{from, to} {
		held, behind := []keys{}, map[ID]bool{} // the keys of a cut, and what succeeds its segments
		for id := range one {
			held, behind[id] = append(held, all[id]), true
		}
		slices.SortFunc(held, func(a, b keys) int { return int(math.Copysign(1, a.low-b.low)) })
		held = joined(held)
		need(len(held) == 1 && held[0].low == 0 && held[0].high > 1-slack, "%s: a cut has not each key once", key)
		for _, change := range found.history {
			for _, sealed := range change.seals {
				for _, opened := range change.opens {
					if _, isOfCut := one[opened.id]; behind[sealed.id] && opened.meets(sealed.low, sealed.high) {
						need(!isOfCut, "%s: a cut has %s and what it succeeds", key, opened.id)
						behind[opened.id] = true
					}
				}
			}
		}
	}
	wanted := []ID{}
	for id, held := range all {
		for first := range from {
			for end := range to {
				isInOrder := first == end || first>>32 < end>>32 || !all[first].meets(all[end].low, all[end].high)
				need(isInOrder, "%s begins after its end", key)
				low, high := max(all[first].low, held.low), min(all[first].high, held.high)
				if all[end].meets(low, high) && low < high && first>>32 <= id>>32 && id>>32 <= end>>32 && !slices.Contains(wanted, id) {
					wanted = append(wanted, id)
				}
			}
		}
	}
	slices.Sort(wanted)
	need(len(wanted) == len(found.Segments), "%s has other segments than are between its cuts", key)
	var events, size uint64
	var open []bool // whether those of the last epoch are sealed: all or none
	for at, one := range found.Segments {
		id := archive.id(one.Name)
		start := from[id]
		end, ends := to[id]
		right := id == wanted[at] && one.Start == start && one.Start <= one.End && (!ends || one.End == end)
		if last[id] {
			open = append(open, one.Sealed)
		}
		need(right && one.Sealed == (!last[id] || open[0]), "%s: the entry of %s", key, one.Name)
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
		right := at == entry.End && events == entry.Events && size == entry.Bytes && digestOf(digests) == entry.Digest
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
