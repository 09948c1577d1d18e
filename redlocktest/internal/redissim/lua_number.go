package redissim

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// formatNumber prints a number as Lua 5.1 does: "%.14g".
func formatNumber(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e14 && (f != 0 || !math.Signbit(f)) {
		return strconv.FormatInt(int64(f), 10)
	}
	return formatG(f, 14, false)
}

// formatArg prints a number that is handed to redis.call: exact where it is an integer.
func formatArg(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return formatG(f, 17, false)
}

// formatG is C's %.<precision>g.
func formatG(f float64, precision int, alternate bool) string {
	if s, ok := notFinite(f); ok {
		return s
	}
	precision = max(precision, 1)
	s := strconv.FormatFloat(f, 'e', precision-1, 64)
	mark := strings.IndexByte(s, 'e')
	exp, _ := strconv.Atoi(s[mark+1:])
	if exp >= -4 && exp < precision {
		return trimZeros(strconv.FormatFloat(f, 'f', precision-1-exp, 64), alternate)
	}
	return trimZeros(s[:mark], alternate) + s[mark:]
}

func trimZeros(s string, keep bool) string {
	if keep || !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func notFinite(f float64) (string, bool) {
	switch {
	case math.IsInf(f, 1):
		return "inf", true
	case math.IsInf(f, -1):
		return "-inf", true
	case math.IsNaN(f) && math.Signbit(f):
		return "-nan", true
	case math.IsNaN(f):
		return "nan", true
	}
	return "", false
}

// parseNumber reads a number as Lua 5.1 does.
func parseNumber(s string) (float64, bool) {
	s = strings.Trim(s, " \t\n\v\f\r")
	if strings.Contains(s, "_") { // Go's, not C's
		return 0, false
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return f, true
	}
	hex, negative := strings.CutPrefix(s, "-")
	if len(hex) < 3 || hex[0] != '0' || hex[1]|0x20 != 'x' {
		return 0, false
	}
	n, err := strconv.ParseUint(hex[2:], 16, 64)
	if err != nil {
		return 0, false
	}
	if negative {
		return -float64(n), true
	}
	return float64(n), true
}

// formatSpec is one conversion of string.format, as in "%-08.3f".
type formatSpec struct {
	flags     string
	width     int
	precision int // -1: not given
	verb      byte
}

// parseSpec reads the conversion behind a '%' and returns the rest of the format.
func parseSpec(s string) (spec formatSpec, rest string, ok bool) {
	i := 0
	for i < len(s) && strings.IndexByte("-+ #0", s[i]) >= 0 {
		i++
	}
	spec.flags, spec.precision = s[:i], -1
	number := func() (n int) {
		for d := 0; d < 2 && i < len(s) && s[i] >= '0' && s[i] <= '9'; d++ {
			n = n*10 + int(s[i]-'0')
			i++
		}
		return n
	}
	spec.width = number()
	if i < len(s) && s[i] == '.' {
		i++
		spec.precision = number()
	}
	if i == len(s) {
		return spec, "", false
	}
	spec.verb = s[i]
	return spec, s[i+1:], true
}

// number formats f for the verbs d i u c x X o e E f g G.
func (p formatSpec) number(f float64) string {
	if p.verb == 'f' && p.precision == 0 && p.flags == "" && p.width == 0 && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(math.RoundToEven(f)), 10)
	}
	var s string
	switch p.verb {
	case 'd', 'i':
		s = p.integer(fmt.Sprint(int64(f)))
	case 'u':
		s = p.integer(fmt.Sprint(uint64(int64(f))))
	case 'o', 'x', 'X':
		format := "%"
		if strings.Contains(p.flags, "#") {
			format += "#"
		}
		s = p.integer(fmt.Sprintf(format+string(p.verb), uint64(int64(f))))
	case 'c':
		return p.pad(string([]byte{byte(int64(f))}), false)
	default:
		s = p.float(f)
	}
	return p.pad(s, true)
}

// integer applies the precision, which is a least number of digits, and the sign flags.
func (p formatSpec) integer(s string) string {
	digits, negative := strings.CutPrefix(s, "-")
	if p.precision == 0 && digits == "0" {
		digits = ""
	}
	for len(digits) < p.precision {
		digits = "0" + digits
	}
	if negative {
		return "-" + digits
	}
	return p.sign() + digits
}

func (p formatSpec) float(f float64) string {
	precision := p.precision
	if precision < 0 {
		precision = 6
	}
	s, special := notFinite(f)
	switch {
	case special:
	case p.verb == 'g' || p.verb == 'G':
		s = formatG(f, precision, strings.Contains(p.flags, "#"))
	default:
		s = strconv.FormatFloat(f, p.verb|0x20, precision, 64)
	}
	if p.verb < 'a' {
		s = strings.ToUpper(s)
	}
	if strings.HasPrefix(s, "-") {
		return s
	}
	return p.sign() + s
}

func (p formatSpec) sign() string {
	switch {
	case strings.IndexByte("uoxX", p.verb) >= 0:
		return ""
	case strings.Contains(p.flags, "+"):
		return "+"
	case strings.Contains(p.flags, " "):
		return " "
	}
	return ""
}

// text is %s.
func (p formatSpec) text(s string) string {
	if p.precision >= 0 && p.precision < len(s) {
		s = s[:p.precision]
	}
	return p.pad(s, false)
}

func (p formatSpec) pad(s string, numeric bool) string {
	missing := p.width - len(s)
	switch {
	case missing <= 0:
		return s
	case strings.Contains(p.flags, "-"):
		return s + strings.Repeat(" ", missing)
	case numeric && strings.Contains(p.flags, "0") && !(p.precision >= 0 && strings.IndexByte("diuoxX", p.verb) >= 0):
		sign := 0
		if s != "" && strings.IndexByte("+- ", s[0]) >= 0 {
			sign = 1
		}
		return s[:sign] + strings.Repeat("0", missing) + s[sign:]
	}
	return strings.Repeat(" ", missing) + s
}
