// Reads and verifies an archive of Streamvault in a folder. Written from docs/reference/format.md; no line is Streamvault's.
//
//	reader list FOLDER      prints the generations in force
//	reader verify FOLDER    compares everything; prints a JSON object with the verdict
//	reader events FOLDER    prints each event: its pointer, a tab, and the payload in base64
//
// FOLDER is ROOT/SCOPE/STREAM. Exit codes: 0 intact, 1 no archive, 3 damage, 4 a version that this reader does not know.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

type segmentSum struct {
	Bytes  uint64 `json:"bytes"`
	Events uint64 `json:"events"`
	SHA256 string `json:"sha256"`
}

type report struct {
	Verdict     string                 `json:"verdict"`
	Findings    []string               `json:"findings,omitempty"`
	Generations [][2]uint32            `json:"generations,omitempty"`
	Events      uint64                 `json:"events"`
	Bytes       uint64                 `json:"bytes"`
	Segments    map[string]*segmentSum `json:"segments"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: reader list|verify|events ROOT/SCOPE/STREAM")
		os.Exit(2)
	}
	folder, _ := filepath.Abs(os.Args[2])
	out := bufio.NewWriter(os.Stdout)
	found := &report{Verdict: "intact", Segments: map[string]*segmentSum{}}
	found.keep(func() { found.read(os.Args[1], folder, out) })
	if os.Args[1] == "verify" {
		text, _ := json.MarshalIndent(found, "", " ")
		fmt.Fprintln(out, string(text))
	}
	out.Flush()
	for _, finding := range found.Findings {
		fmt.Fprintf(os.Stderr, "%s: %q\n", found.Verdict, finding)
	}
	os.Exit(map[string]int{"intact": 0, "absent": 1, "damage": 3, "reject": 4}[found.Verdict])
}

// A verdict of the specification, as a panic.
type failure struct{ verdict, what string }

func need(right bool, format string, about ...any) {
	if !right {
		panic(failure{"damage", fmt.Sprintf(format, about...)})
	}
}

// Notes what is wrong. Whatever the archive's files make fail here counts as damage.
func (found *report) keep(try func()) {
	defer func() {
		if problem := recover(); problem != nil {
			failed, known := problem.(failure)
			if !known {
				failed = failure{"damage", fmt.Sprint(problem)}
			}
			found.Verdict, found.Findings = failed.verdict, append(found.Findings, failed.what)
		}
	}()
	try()
}

func (found *report) read(command, folder string, out *bufio.Writer) {
	archive := open(folder)
	for _, one := range archive.generations {
		found.Generations = append(found.Generations, [2]uint32{one.first(), one.Generation})
		if command == "list" {
			fmt.Fprintf(out, "%d-%d\t%d events\t%d bytes\n", one.first(), one.Generation, one.Events, one.Bytes)
		}
	}
	if command == "list" {
		return
	}
	for _, one := range archive.generations {
		found.keep(func() { archive.readNotedBlocks(one) })
	}
	for _, segment := range archive.segments() { // a damaged range does not stop the others
		sum, digest := &segmentSum{}, newDigest()
		for _, one := range archive.generations {
			for _, row := range one.rows[segment] {
				found.keep(func() {
					data := archive.rangeOf(one, row)
					digest.Write(data)
					sum.Bytes, sum.Events = sum.Bytes+uint64(len(data)), sum.Events+row.events
					for at := uint64(0); command == "events" && row.events > 0 && at < uint64(len(data)); {
						length := 8 + uint64(binary.BigEndian.Uint32(data[at+4:]))
						payload := base64.StdEncoding.EncodeToString(data[at+8 : at+length])
						fmt.Fprintf(out, "%s/%s:%d-%d\t%s\n", archive.stream, segment, row.start+at, length, payload)
						at += length
					}
				})
			}
		}
		sum.SHA256 = hexadecimal(digest)
		found.Segments[segment.String()] = sum
		found.Events, found.Bytes = found.Events+sum.Events, found.Bytes+sum.Bytes
	}
}
