package redlock

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"time"
)

// exportedLock is what one process hands to another with a lock. It travels as text, so that it fits into an environment
// variable or a flag:
//
//	redlock1.<base64url of the fields, in this order, and of their CRC-32>
//
// Numbers are varints, texts have their length before them.
type exportedLock struct {
	prefix string // KeyPrefix
	set    string // id of the set of nodes, as their markers have it
	nodes  int
	name   string
	claim  string // what the nodes store: owner, and what follows it
	token  uint64
	until  time.Duration // when AtMost or FixedLease ends it, in node time; 0: never
	lease  time.Duration // of its own; 0: none
	votes  []exportedVote
}

// exportedVote is a vote that stood when the lock was exported.
type exportedVote struct {
	process string        // run_id of the server that gave it
	until   time.Duration // when its lease ends if nothing renews it, in node time
}

const exportVersion = "redlock1."

func (x *exportedLock) encode() []byte {
	var b []byte
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	micros := func(d time.Duration) { b = binary.AppendUvarint(b, uint64(d.Microseconds())) }
	text(x.prefix)
	text(x.set)
	b = binary.AppendUvarint(b, uint64(x.nodes))
	text(x.name)
	text(x.claim)
	b = binary.AppendUvarint(b, x.token)
	micros(x.until)
	micros(x.lease)
	b = binary.AppendUvarint(b, uint64(len(x.votes)))
	for _, v := range x.votes {
		text(v.process)
		micros(v.until)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.AppendEncode([]byte(exportVersion), b)
}

// decodeExport reads what encode has written. Anything else is an error that matches ErrExportInvalid.
func decodeExport(text []byte) (*exportedLock, error) {
	head, rest, found := strings.Cut(string(text), ".")
	switch {
	case !found || !strings.HasPrefix(head, "redlock"):
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrExportInvalid, exportVersion)
	case head+"." != exportVersion:
		return nil, fmt.Errorf("%w: it is of version %.20q, this program reads %q", ErrExportInvalid, head, exportVersion[:len(exportVersion)-1])
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrExportInvalid, err)
	}
	if len(b) < crc32.Size || crc32.ChecksumIEEE(b[:len(b)-crc32.Size]) != binary.BigEndian.Uint32(b[len(b)-crc32.Size:]) {
		return nil, fmt.Errorf("%w: its checksum is wrong: it was cut off or altered", ErrExportInvalid)
	}
	b = b[:len(b)-crc32.Size]
	sound := true
	number := func(most uint64) uint64 {
		n, size := binary.Uvarint(b)
		if sound = sound && size > 0 && n <= most; !sound {
			return 0
		}
		b = b[size:]
		return n
	}
	field := func() string {
		n := number(uint64(len(b)))
		if sound = sound && n <= uint64(len(b)); !sound {
			return ""
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	micros := func() time.Duration { return time.Duration(number(maxNodeMicros)) * time.Microsecond }
	x := &exportedLock{prefix: field(), set: field(), nodes: int(number(1 << 16)), name: field(), claim: field(), token: number(maxNodeMicros), until: micros(), lease: micros()}
	for range number(uint64(len(b))) {
		x.votes = append(x.votes, exportedVote{process: field(), until: micros()})
		if !sound {
			break
		}
	}
	if !sound || len(b) != 0 || len(ownerOf(x.claim)) != ownerLen || len(x.votes) > x.nodes || string(x.encode()) != string(text) {
		return nil, fmt.Errorf("%w: its fields are not those of a lock", ErrExportInvalid)
	}
	return x, nil
}

const (
	ownerLen      = 26      // of rand.Text
	maxNodeMicros = 1 << 53 // the year 2255, up to which nodes count µs by ones
)
