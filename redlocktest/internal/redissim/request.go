package redissim

import (
	"bytes"
	"errors"
	"strconv"
)

// ErrProtocol is what ParseRequest answers to bytes that are no RESP array of bulk strings. A real server closes the
// connection on most of them.
var ErrProtocol = errors.New("redissim: protocol error")

// ParseRequest takes the first complete command off buf and returns how many bytes it used. It returns 0 bytes and no
// error while the command is incomplete. The arguments own their memory.
func ParseRequest(buf []byte) (args []string, used int, err error) {
	count, pos, err := parseLength(buf, 0, '*')
	if err != nil || pos == 0 {
		return nil, 0, err
	}
	type span struct{ from, to int }
	var few [16]span
	spans := few[:0]
	for range count {
		size, next, err := parseLength(buf, pos, '$')
		if err != nil || next == 0 {
			return nil, 0, err
		}
		if len(buf) < next+size+2 {
			return nil, 0, nil
		}
		spans = append(spans, span{next, next + size})
		pos = next + size + 2
	}
	// One copy for the whole command: its arguments are slices of that.
	text := string(buf[:pos])
	args = make([]string, len(spans))
	for i, s := range spans {
		args[i] = text[s.from:s.to]
	}
	return args, pos, nil
}

// parseLength reads "<mark><decimal>\r\n" at buf[pos:] and returns the number and the position behind it, which is 0
// while the line is incomplete.
func parseLength(buf []byte, pos int, mark byte) (n, next int, err error) {
	if pos >= len(buf) {
		return 0, 0, nil
	}
	if buf[pos] != mark {
		return 0, 0, ErrProtocol
	}
	end := bytes.IndexByte(buf[pos:], '\n')
	if end < 0 {
		return 0, 0, nil
	}
	line := buf[pos+1 : pos+end]
	if len(line) < 2 || line[len(line)-1] != '\r' {
		return 0, 0, ErrProtocol
	}
	n, err = strconv.Atoi(string(line[:len(line)-1]))
	if err != nil || n < 0 || n > 512<<20 {
		return 0, 0, ErrProtocol
	}
	return n, pos + end + 1, nil
}
