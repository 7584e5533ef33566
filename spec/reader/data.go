package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
)

const block = 1 << 20

// Row is a range: a row of an index.
type Row struct {
	segment            ID
	start, end, events uint64
	digest             string
	frames             []int32
	stored, blocks     string // checksums of the object and of the blocks, in base64; empty if they are not known
}

var crcTable = crc64.MakeTable(0x9a6c9329ac4bc9b5) // CRC-64/NVME, reflected
var decoder, _ = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(block), zstd.WithDecoderConcurrency(1))

func crcOf(data []byte) []byte {
	return binary.BigEndian.AppendUint64(nil, crc64.Checksum(data, crcTable))
}

// Takes the checksums of one row from a text; empty if they are not known.
func take(text *string, length int, key string) string {
	if *text == "" {
		return ""
	}
	need(len(*text) >= length, "%s: checksums are missing", key)
	found := (*text)[:length]
	*text = (*text)[length:]
	if strings.Trim(found, ".") == "" {
		return ""
	}
	_, err := base64.StdEncoding.Strict().DecodeString(found)
	need(err == nil, "%s: checksums are not valid", key)
	return found
}

func blocksLength(size uint64) int {
	return base64.StdEncoding.EncodedLen(8 * int((size+block-1)/block))
}

func (archive *Archive) index(found *Manifest, key string) {
	data := archive.get(key, min(found.Index.Bytes, 1<<30))
	need(int64(len(data)) == found.Index.Bytes && digestOf(data) == found.Index.Digest, "%s is not the manifest's", key)
	file, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	need(err == nil, "%s is not a Parquet file: %v", key, err)
	metadata := map[string]string{}
	for _, one := range file.Metadata().KeyValueMetadata {
		metadata[one.Key] = one.Value
	}
	if digest, there := metadata["streamvault.digest"]; there && digest != "sha256" {
		panic(failure{"reject", key + " has digests of another algorithm"})
	}
	columns := []string{}
	for _, column := range file.Schema().Columns() {
		leaf, _ := file.Schema().Lookup(column...)
		columns = append(columns, fmt.Sprint(strings.Join(column, "."), " ", leaf.Node.Type().Kind(), " ", leaf.Node.Optional()))
	}
	plain := "segment BYTE_ARRAY false,start INT64 false,end INT64 false,events INT64 false,digest BYTE_ARRAY false"
	given := strings.Join(columns, ",")
	need(given == plain || given == plain+",frames.list.element INT32 true", "%s has other columns: %s", key, given)
	need(file.NumRows() <= int64(len(data)/64), "%s claims %d rows", key, file.NumRows())
	found.rows = map[ID][]*Row{}
	var last *Row
	var stored, blocks string
	rows := parquet.NewReader(file)
	defer rows.Close()
	for number := range int(file.NumRows()) {
		read := make([]parquet.Row, 1)
		count, _ := rows.ReadRows(read)
		need(count == 1, "%s has fewer rows than it claims", key)
		if number%10_000 == 0 {
			need(stored == "", "%s has checksums of more objects", key)
			stored = metadata["streamvault.crc64nvme."+strconv.Itoa(number/10_000)]
		}
		if number%1000 == 0 {
			need(blocks == "", "%s has checksums of more blocks", key)
			blocks = metadata["streamvault.blocks."+strconv.Itoa(number/1000)]
		}
		values := read[0]
		row := &Row{segment: archive.id(values[0].String()), start: values[1].Uint64(), end: values[2].Uint64(),
			events: values[3].Uint64(), digest: values[4].String()}
		right := row.start < row.end && row.end < 1<<63 && row.events <= (row.end-row.start)/8 && len(row.digest) == 64
		need(right && (last == nil || last.segment < row.segment || last.segment == row.segment && last.end <= row.start), "%s: row %d", key, number)
		for _, frame := range values[5:] {
			if !frame.IsNull() {
				row.frames = append(row.frames, frame.Int32())
			}
		}
		isWhole := uint64(len(row.frames)) == (row.end-row.start+block-1)/block
		need(isWhole || len(row.frames) == 0, "%s: row %d has other frames", key, number)
		row.stored, row.blocks = take(&stored, 12, key), take(&blocks, blocksLength(row.end-row.start), key)
		found.rows[row.segment], last = append(found.rows[row.segment], row), row
	}
	need(stored == "" && blocks == "", "%s has checksums of more ranges", key)
	archive.crossCheck(found, key)
}

// Noted is the checksums of blocks that a check has noted.
type Noted struct {
	Scope      string   `json:"scope"`
	Stream     string   `json:"stream"`
	Generation uint32   `json:"generation"`
	Digest     string   `json:"digest"`
	Ranges     []string `json:"ranges"`
}

// Takes the checksums of blocks that a check has noted, where the index has none.
func (archive *Archive) readNotedBlocks(found *Manifest) {
	key := span{found.first(), found.Generation}.stem() + ".blocks.json"
	if len(archive.list(key)) == 0 {
		return
	}
	noted := Noted{}
	archive.file(key, &noted)
	isOurs := noted.Scope+"/"+noted.Stream == archive.stream && noted.Generation == found.Generation
	need(isOurs && noted.Digest == found.fingerprint, "%s is of another manifest", key)
	for _, segment := range archive.segments() {
		for _, row := range found.rows[segment] {
			need(len(noted.Ranges) > 0 && len(noted.Ranges[0]) == blocksLength(row.end-row.start), "%s: checksums", key)
			text := noted.Ranges[0]
			checksums := take(&text, len(text), key)
			need(checksums != "", "%s: checksums", key)
			if row.blocks == "" {
				row.blocks = checksums
			}
			noted.Ranges = noted.Ranges[1:]
		}
	}
	need(len(noted.Ranges) == 0, "%s has checksums of more ranges", key)
}

// Returns a range's bytes, which have its digest.
func (archive *Archive) rangeOf(found *Manifest, row *Row) (data []byte) {
	folder := fmt.Sprintf("%s/%010d.%010d", found.Layout, row.segment>>32, uint32(row.segment))
	if found.Layout == "events" {
		data = archive.chain(folder, row)
	} else {
		data = archive.chunk(fmt.Sprintf("%s/%019d-%019d", folder, row.start, row.end-row.start), row)
	}
	events := uint64(0)
	for at := uint64(0); found.Content == "events" && at < uint64(len(data)); events++ {
		need(uint64(len(data)) >= at+8 && binary.BigEndian.Uint32(data[at:]) == 0, "%s: not an event at %d", folder, row.start+at)
		at += 8 + uint64(binary.BigEndian.Uint32(data[at+4:]))
		need(at <= uint64(len(data)), "%s: an event does not end in its range", folder)
	}
	need(events == row.events, "%s: %d events from %d on instead of %d", folder, events, row.start, row.events)
	crcs := []byte{}
	for at := 0; at < len(data); at += block {
		crcs = append(crcs, crcOf(data[at:min(at+block, len(data))])...)
	}
	need(row.blocks == "" || row.blocks == base64.StdEncoding.EncodeToString(crcs), "%s: the range at %d has its digest, its blocks have not their checksums", folder, row.start)
	return data
}

func (archive *Archive) chunk(key string, row *Row) []byte {
	data := archive.get(key, int64(row.end-row.start)*2+block)
	need(row.stored == "" || row.stored == base64.StdEncoding.EncodeToString(crcOf(data)), "%s has another checksum", key)
	if row.frames != nil {
		raw := []byte{}
		for _, size := range row.frames {
			need(0 < size && size <= 1_056_768 && int(size) <= len(data), "%s is shorter than its frames", key)
			var header zstd.Header
			need(header.Decode(data[:size]) == nil && header.HasFCS && !header.Skippable, "%s has a frame without its size", key)
			frame, err := decoder.DecodeAll(data[:size], nil)
			isBlock := len(frame) == min(block, int(row.end-row.start)-len(raw)) && header.FrameContentSize == uint64(len(frame))
			need(err == nil && isBlock, "%s cannot be decompressed: %v", key, err)
			raw, data = append(raw, frame...), data[size:]
		}
		need(len(data) == 0, "%s is longer than its frames", key)
		data = raw
	}
	need(digestOf(data) == row.digest, "%s has another digest", key)
	return data
}

// Follows the chain of a range's events in the listing; of several chains, the one that has the digest.
func (archive *Archive) chain(folder string, row *Row) []byte {
	at := map[uint64][]string{}
	for _, key := range archive.list(folder) {
		offset, err := strconv.ParseUint(strings.TrimPrefix(key, folder+"/")[:min(19, len(key)-len(folder)-1)], 10, 63)
		if err == nil && len(key) == len(folder)+1+30 && row.start <= offset && offset < row.end {
			at[offset] = append(at[offset], key)
		}
	}
	tried := 0
	var follow func(offset uint64, held []byte) []byte
	follow = func(offset uint64, held []byte) []byte {
		if offset == row.end {
			if tried++; digestOf(held) == row.digest {
				return held
			}
			return nil
		}
		for _, key := range at[offset] {
			length, err := strconv.ParseUint(key[len(key)-10:], 10, 31)
			if err != nil || length < 8 || offset+length > row.end || tried >= 16 {
				continue
			}
			payload := archive.get(key, 1<<31)
			if uint64(len(payload)) == length-8 {
				header := binary.BigEndian.AppendUint64(nil, length-8)
				if found := follow(offset+length, append(append(held[:len(held):len(held)], header...), payload...)); found != nil {
					return found
				}
			}
		}
		return nil
	}
	data := follow(row.start, []byte{})
	need(data != nil, "%s: no chain of objects from %d to %d has the digest", folder, row.start, row.end)
	return data
}
