package redissim

import (
	"strconv"
	"strings"
)

// kind is the RESP3 type byte of a Value. Two kinds of our own stand for replies whose shape depends on the protocol.
type kind byte

const (
	kindNone     kind = 0   // no reply at all
	kindSimple   kind = '+' // also what redis.status_reply makes
	kindError    kind = '-'
	kindInt      kind = ':'
	kindBulk     kind = '$'
	kindNull     kind = '_'
	kindArray    kind = '*'
	kindMap      kind = '%' // elems alternate key and value; a flat array in RESP2
	kindSet      kind = '~' // an array in RESP2
	kindDouble   kind = ',' // a bulk string in RESP2
	kindVerbatim kind = '=' // a bulk string in RESP2
	kindPairs    kind = 'P' // elems alternate member and score; RESP3 nests each pair, RESP2 is flat
)

// Value is one reply. The zero Value is "no reply".
type Value struct {
	kind  kind
	num   int64
	float float64
	str   string
	elems []Value
}

var (
	replyOK   = Value{kind: kindSimple, str: "OK"}
	replyNull = Value{kind: kindNull}
)

func simple(s string) Value       { return Value{kind: kindSimple, str: s} }
func integer(n int64) Value       { return Value{kind: kindInt, num: n} }
func bulk(s string) Value         { return Value{kind: kindBulk, str: s} }
func array(elems ...Value) Value  { return Value{kind: kindArray, elems: elems} }
func double(f float64) Value      { return Value{kind: kindDouble, float: f} }
func errorReply(msg string) Value { return Value{kind: kindError, str: msg} }

func bulks(list []string) Value {
	v := Value{kind: kindArray, elems: make([]Value, len(list))}
	for i, s := range list {
		v.elems[i] = bulk(s)
	}
	return v
}

func truth(b bool) Value {
	if b {
		return integer(1)
	}
	return integer(0)
}

func (v Value) isError() bool { return v.kind == kindError }

// Go returns v as a string, int64, float64, error, nil or []any of these.
func (v Value) Go() any {
	switch v.kind {
	case kindSimple, kindBulk, kindVerbatim:
		return v.str
	case kindInt:
		return v.num
	case kindDouble:
		return v.float
	case kindError:
		return ReplyError(v.str)
	case kindArray, kindMap, kindSet, kindPairs:
		list := make([]any, len(v.elems))
		for i, e := range v.elems {
			list[i] = e.Go()
		}
		return list
	}
	return nil
}

// ReplyError is an error reply, without the leading '-'.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// appendValue encodes v for a client that speaks protocol 2 or 3.
func appendValue(b []byte, v Value, proto int) []byte {
	switch v.kind {
	case kindNone:
		return b
	case kindSimple, kindError:
		b = append(b, byte(v.kind))
		b = append(b, oneLine(v.str)...)
		return append(b, "\r\n"...)
	case kindInt:
		return appendHead(b, ':', v.num)
	case kindBulk:
		return appendBulk(b, v.str)
	case kindNull:
		if proto == 3 {
			return append(b, "_\r\n"...)
		}
		return append(b, "$-1\r\n"...)
	case kindDouble:
		s := formatDouble(v.float)
		if proto != 3 {
			return appendBulk(b, s)
		}
		b = append(b, ',')
		b = append(b, s...)
		return append(b, "\r\n"...)
	case kindVerbatim:
		if proto != 3 {
			return appendBulk(b, v.str)
		}
		b = appendHead(b, '=', int64(len(v.str)+4))
		b = append(b, "txt:"...)
		b = append(b, v.str...)
		return append(b, "\r\n"...)
	case kindMap:
		if proto == 3 {
			b = appendHead(b, '%', int64(len(v.elems)/2))
		} else {
			b = appendHead(b, '*', int64(len(v.elems)))
		}
	case kindSet:
		if proto == 3 {
			b = appendHead(b, '~', int64(len(v.elems)))
		} else {
			b = appendHead(b, '*', int64(len(v.elems)))
		}
	case kindPairs:
		if proto == 3 {
			b = appendHead(b, '*', int64(len(v.elems)/2))
			for i := 0; i+1 < len(v.elems); i += 2 {
				b = appendHead(b, '*', 2)
				b = appendValue(b, v.elems[i], proto)
				b = appendValue(b, v.elems[i+1], proto)
			}
			return b
		}
		b = appendHead(b, '*', int64(len(v.elems)))
	default:
		b = appendHead(b, '*', int64(len(v.elems)))
	}
	for _, e := range v.elems {
		b = appendValue(b, e, proto)
	}
	return b
}

// appendInvalidation encodes the push that names keys; no keys at all means "everything".
func appendInvalidation(b []byte, keys []string) []byte {
	b = append(b, ">2\r\n$10\r\ninvalidate\r\n"...)
	if keys == nil {
		return append(b, "_\r\n"...)
	}
	b = appendHead(b, '*', int64(len(keys)))
	for _, key := range keys {
		b = appendBulk(b, key)
	}
	return b
}

func appendHead(b []byte, t byte, n int64) []byte {
	b = append(b, t)
	b = strconv.AppendInt(b, n, 10)
	return append(b, "\r\n"...)
}

func appendBulk(b []byte, s string) []byte {
	b = appendHead(b, '$', int64(len(s)))
	b = append(b, s...)
	return append(b, "\r\n"...)
}

var lineBreaks = strings.NewReplacer("\r", " ", "\n", " ")

// oneLine keeps a status or an error from breaking the protocol, as Redis does.
func oneLine(s string) string {
	if strings.ContainsAny(s, "\r\n") {
		return lineBreaks.Replace(s)
	}
	return s
}

// formatDouble prints a score as Redis does: integers plainly, else the shortest form that reads back.
func formatDouble(f float64) string {
	switch s := strconv.FormatFloat(f, 'g', -1, 64); s {
	case "+Inf":
		return "inf"
	case "-Inf":
		return "-inf"
	case "NaN":
		return "nan"
	default:
		if f == float64(int64(f)) && f < 1e17 && f > -1e17 {
			return strconv.FormatInt(int64(f), 10)
		}
		return s
	}
}
