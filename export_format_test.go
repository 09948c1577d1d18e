package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func someExport() *exportedLock {
	return &exportedLock{
		prefix: "redlock", set: "SET", nodes: 3, name: "x\x00{ü}\n", claim: "ABCDEFGHIJKLMNOPQRSTUVWXYZ#1700000000000000",
		token: 1700000000000001, until: time.Hour, lease: time.Second,
		votes: []exportedVote{{"0123456789012345678901234567890123456789", 5 * time.Second}, {"", 0}},
	}
}

// The text of a lock of version 1, as it was first written: programs of different versions hand locks to each other.
func TestExportFormatStays(t *testing.T) {
	const text = "redlock1.B3JlZGxvY2sDU0VUAwd4AHvDvH0KK0FCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaIzE3MDAwMDAwMDAwMDAwMDCBgPnAwcSCA4DIzrQNwIQ9AigwMTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5wJaxAgAAf0WfsQ"
	require.Equal(t, text, string(someExport().encode()))
	x, err := decodeExport([]byte(text))
	require.NoError(t, err)
	require.Equal(t, someExport(), x)
}

// Whatever is cut off or altered is refused: a lock is resumed as it was exported, or not at all.
func TestExportThatIsAlteredIsRefused(t *testing.T) {
	text := someExport().encode()
	for i := range text {
		_, err := decodeExport(text[:i])
		require.ErrorIs(t, err, ErrExportInvalid, "cut off at %d", i)
		for _, other := range []byte("Aa0-. \x00") {
			altered := append([]byte(nil), text...)
			if altered[i] == other {
				continue
			}
			altered[i] = other
			_, err := decodeExport(altered)
			require.ErrorIs(t, err, ErrExportInvalid, "%q", altered)
		}
	}
	_, err := decodeExport([]byte("redlock2.abc"))
	require.ErrorContains(t, err, "version")
}

// Any bytes are refused, or read to what is written again alike.
func FuzzDecodeExport(f *testing.F) {
	f.Add(someExport().encode())
	f.Add((&exportedLock{claim: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", nodes: 1}).encode())
	f.Add([]byte("redlock1."))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		x, err := decodeExport(text)
		if err != nil {
			require.ErrorIs(t, err, ErrExportInvalid)
			return
		}
		require.Equal(t, string(text), string(x.encode()))
	})
}
