package redissim

// globMatch reports whether s matches a Redis glob: ? * [abc] [^a] [a-z] and \ to escape.
func globMatch(pattern, s string) bool {
	for len(pattern) > 0 {
		switch pattern[0] {
		case '*':
			for len(pattern) > 0 && pattern[0] == '*' {
				pattern = pattern[1:]
			}
			for i := 0; i <= len(s); i++ {
				if globMatch(pattern, s[i:]) {
					return true
				}
			}
			return false
		case '?':
			if s == "" {
				return false
			}
			pattern, s = pattern[1:], s[1:]
		case '[':
			if s == "" {
				return false
			}
			in, rest := matchClass(pattern[1:], s[0])
			if !in {
				return false
			}
			pattern, s = rest, s[1:]
		case '\\':
			if len(pattern) > 1 {
				pattern = pattern[1:]
			}
			fallthrough
		default:
			if s == "" || s[0] != pattern[0] {
				return false
			}
			pattern, s = pattern[1:], s[1:]
		}
	}
	return s == ""
}

// matchClass matches c against the class that begins behind '[' and returns what follows its ']'. A class that is never
// closed ends with the pattern, as in Redis.
func matchClass(p string, c byte) (in bool, rest string) {
	not := len(p) > 0 && p[0] == '^'
	if not {
		p = p[1:]
	}
	for len(p) > 0 && p[0] != ']' {
		switch {
		case p[0] == '\\' && len(p) > 1:
			in = in || p[1] == c
			p = p[2:]
		case len(p) >= 3 && p[1] == '-':
			low, high := min(p[0], p[2]), max(p[0], p[2])
			in = in || low <= c && c <= high
			p = p[3:]
		default:
			in = in || p[0] == c
			p = p[1:]
		}
	}
	if len(p) > 0 {
		p = p[1:]
	}
	return in != not, p
}
