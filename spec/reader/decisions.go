package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// A span is the generations First to Generation, merged into one.
type span struct {
	First      uint32 `json:"first"`
	Generation uint32 `json:"generation"`
}

func (one span) holds(number uint32) bool { return one.First <= number && number <= one.Generation }

func (one span) stem() string {
	if one.First == one.Generation {
		return fmt.Sprintf("_manifest/%010d", one.Generation)
	}
	return fmt.Sprintf("_manifest/%010d-%010d", one.Generation, one.First)
}

type hold struct {
	Generation uint32 `json:"generation"`
	Name       string `json:"name"`
	Who        string `json:"who"`
	Why        string `json:"why"`
	Created    string `json:"created"`
}

// Decision says what has expired, is merged and is held.
type Decision struct {
	Format   uint32           `json:"format"`
	Scope    string           `json:"scope"`
	Stream   string           `json:"stream"`
	Number   uint32           `json:"number"`
	Dropped  uint32           `json:"dropped"`
	Swept    uint32           `json:"swept"`
	Begin    map[string]int64 `json:"begin"`
	Empty    bool             `json:"empty"`
	Merged   []span           `json:"merged"`
	Holds    []hold           `json:"holds"`
	Released []hold           `json:"released"`
	Deletion string           `json:"deletion"`
}

var recordKey = regexp.MustCompile(`^_manifest/([0-9]{10})(?:-([0-9]{10}))?\.(json|ranges\.parquet|checked\.json|blocks\.json)$`)
var numberedKey = regexp.MustCompile(`^_manifest/(decisions|truncations)/([0-9]{10})\.json$`)

func parsed(digits string) uint32 {
	number, err := strconv.ParseUint(digits, 10, 31)
	if err != nil {
		return 0
	}
	return uint32(number)
}

// The generations in force, in order.
func (archive *Archive) inForce() []span {
	records, numbers, later := map[span][]string{}, []uint32{}, uint32(0)
	for _, key := range archive.list("_manifest") {
		if found := recordKey.FindStringSubmatch(key); found != nil {
			one := span{parsed(found[1]), parsed(found[1])}
			if found[2] != "" {
				one.First = parsed(found[2])
			}
			if 0 < one.First && one.First <= one.Generation && (found[2] == "" || one.First < one.Generation) {
				records[one] = append(records[one], found[3])
			}
		} else if found := numberedKey.FindStringSubmatch(key); found != nil && found[1] == "decisions" {
			numbers = append(numbers, parsed(found[2]))
		} else if found != nil {
			later = max(later, parsed(found[2]))
		}
	}
	decision := archive.newestDecision(numbers)
	if decision.Deletion == "decided" || decision.Deletion == "done" {
		panic(failure{"absent", "the archive was deleted"})
	}
	spans := slices.Clone(decision.Merged)
	for one, kinds := range records {
		merged := slices.ContainsFunc(spans, func(other span) bool { return other.First < other.Generation && other.holds(one.First) })
		if slices.Contains(kinds, "json") && one.First == one.Generation && one.First > decision.Dropped && !merged {
			spans = append(spans, one)
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return int(a.First) - int(b.First) })
	next := decision.Dropped + 1
	for _, one := range spans {
		need(one.First == next && slices.Contains(records[one], "json"), "the manifest of generation %d is missing", next)
		next = one.Generation + 1
	}
	for _, one := range decision.Holds {
		later = max(later, one.Generation)
	}
	for one, kinds := range records {
		_, err := os.Lstat(filepath.Join(archive.folder, fmt.Sprintf("_work/%010d/plan.json", one.Generation)))
		if one.First == one.Generation && !(len(kinds) == 1 && kinds[0] == "ranges.parquet" && err == nil) {
			later = max(later, one.Generation)
		}
	}
	need(later < next, "generation %d was published, and its manifest is missing", later)
	if len(spans) == 0 {
		need(decision.Dropped == 0 || decision.Empty, "the manifest of generation %d is missing", next)
		panic(failure{"absent", "no archive"})
	}
	return spans
}

// The newest decision, which is compared with those before it, as far as they are there.
func (archive *Archive) newestDecision(numbers []uint32) Decision {
	newest := archive.decision(slices.Max(append(numbers, 0)))
	need(newest.Number <= 1_000_000_000, "decision %d has a number that no archive reaches", newest.Number)
	for after := newest; after.Number > 0 && newest.Number-after.Number < 4; {
		older := slices.Max(append(slices.DeleteFunc(slices.Clone(numbers), func(one uint32) bool { return one >= after.Number }), 0))
		if older == 0 && after.Number > 1 {
			break
		}
		before := archive.decision(older)
		need(older == after.Number-1 && after.follows(before), "decision %d does not follow from decision %d", after.Number, older)
		after = before
	}
	return newest
}

func (archive *Archive) decision(number uint32) (found Decision) {
	if number == 0 {
		return found
	}
	archive.file(fmt.Sprintf("_manifest/decisions/%010d.json", number), &found)
	isOurs := found.Scope+"/"+found.Stream == archive.stream && found.Number == number
	need(isOurs, "decision %d is of another archive", number)
	right := found.Swept <= found.Dropped && (found.Format == 2) == (found.Deletion != "")
	end := found.Dropped
	for _, one := range found.Merged {
		right = right && end < one.First && one.First < one.Generation
		end = one.Generation
	}
	for _, one := range found.Holds {
		right = right && one.Generation > found.Dropped
	}
	need(right, "decision %d contradicts itself", number)
	return found
}

func (after Decision) follows(before Decision) bool {
	isDeleted := after.Deletion == "decided" || after.Deletion == "done"
	right := after.Dropped >= before.Dropped && after.Swept >= before.Swept && !(isDeleted && len(after.Holds) > 0)
	right = right && (before.Dropped == 0 || before.Empty && after.Empty || maps.Equal(before.Begin, after.Begin))
	if step := before.Deletion + ">" + after.Deletion; before.Deletion != after.Deletion {
		right = right && slices.Contains([]string{">begun", "begun>", "begun>decided", "decided>done"}, step)
		right = right && after.Dropped == before.Dropped && slices.Equal(after.Holds, before.Holds)
	}
	for _, one := range before.Holds {
		released := slices.Contains(after.Released, one) && one.Generation > after.Dropped
		right = right && (slices.Contains(after.Holds, one) || released)
	}
	for _, one := range before.Merged {
		inside := func(now span) bool { return now.First <= one.First && one.Generation <= now.Generation }
		right = right && (isDeleted || one.Generation <= after.Dropped || slices.ContainsFunc(after.Merged, inside))
	}
	return right
}
