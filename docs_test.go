package redlock_test

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// What the docs say is looked at where a machine can: code compiles, links lead somewhere, and each log line and error is in
// the runbook.

// markdown returns the texts of all Markdown files, by path.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			texts[path] = string(text)
		}
	}
	require.Contains(t, texts, "README.md")
	require.Contains(t, texts, "docs/design.md")
	return texts
}

var fenced = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// packages are what code in docs may use without an import, as a reader would take it.
var packages = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "slog": "log/slog", "os": "os", "time": "time", "http": "net/http",
	"redlock": "github.com/redlock-go/redlock", "redlocktest": "github.com/redlock-go/redlock/redlocktest",
	"rueidis": "github.com/redis/rueidis", "rueidislock": "github.com/redis/rueidis/rueidislock",
}

// given is what code in docs takes for granted.
const given = `package main

import (
	"context"
	"database/sql"
	"net/http"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/redlock-go/redlock"
)

var (
	locker  *redlock.Locker
	guard   *redlock.Guard
	after   *redlock.Locker
	before  rueidislock.Locker
	db      *sql.DB
	request *http.Request

	path     string
	exported []byte
	newNodes []rueidis.ClientOption
	tick    = time.Now()
)

func main() {}

func purge(context.Context, ...uint64) error          { return nil }
func schedule(context.Context, uint64) error          { return nil }
func write(context.Context, uint64) error             { return nil }
`

// The Go code of the docs compiles, as one program or as the body of a function.
func TestDocsCompile(t *testing.T) {
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "given.go")}
	require.NoError(t, os.WriteFile(files[0], []byte(given), 0o600))
	for path, text := range markdown(t) {
		if path == "README.md" {
			continue // readme_test.go runs its program and compiles its fragments
		}
		for i, m := range fenced.FindAllStringSubmatch(text, -1) {
			if m[1] != "go" {
				continue
			}
			name := fmt.Sprintf("%s_%d", strings.Map(func(r rune) rune {
				if unicode.IsLetter(r) {
					return r
				}
				return '_'
			}, path), i)
			formatted, err := format.Source([]byte(m[2]))
			require.NoError(t, err, "%s:\n%s", path, m[2])
			require.Equal(t, strings.TrimSpace(string(formatted)), strings.TrimSpace(m[2]), "%s is not gofmt'ed", path)
			source := "package main\n\n"
			for word, imported := range packages {
				if regexp.MustCompile(`\b` + word + `\.[A-Z]`).MatchString(m[2]) {
					source += fmt.Sprintf("import %q\n", imported)
				}
			}
			if !strings.Contains(source, `"context"`) {
				source += "import \"context\"\n"
			}
			source += "\nfunc " + name + "(ctx context.Context) error {\n//line " + path + ":1\n" + m[2] + "\n\treturn nil\n}\n"
			file := filepath.Join(dir, name+".go")
			require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
			files = append(files, file)
		}
	}
	require.Greater(t, len(files), 4, "the docs have code")
	out, err := exec.Command("go", append([]string{"build", "-gcflags=-e", "-o", filepath.Join(dir, "docs")}, files...)...).CombinedOutput()
	var wrong []string
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "declared and not used") { // a fragment stops before the use
			wrong = append(wrong, line)
		}
	}
	require.Empty(t, wrong, "%v", err)
}

// What docs show of other modules stands in code that those compile: each line of it.
func TestDocsOfModulesCompile(t *testing.T) {
	for doc, pattern := range map[string]string{
		"docs/integrations.md": "*/example_test.go", "docs/migrating.md": "migrating/*_test.go", "docs/observability.md": "otel/*_test.go",
	} {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		sources, err := filepath.Glob(pattern)
		require.NoError(t, err)
		compiled := make(map[string]bool)
		for _, path := range sources {
			source, err := os.ReadFile(path)
			require.NoError(t, err)
			for line := range strings.Lines(string(source)) {
				compiled[strings.TrimSpace(line)] = true
			}
		}
		shown := 0
		for _, m := range fenced.FindAllStringSubmatch(string(text), -1) {
			if m[1] != "" {
				continue
			}
			for line := range strings.Lines(m[2]) {
				shown++
				require.True(t, compiled[strings.TrimSpace(line)] || strings.TrimSpace(line) == "", "%s shows what %s does not have: %s", doc, pattern, line)
			}
		}
		require.Positive(t, shown, doc)
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// Relative links lead to a file, and to a heading of it.
func TestDocsLinksLeadSomewhere(t *testing.T) {
	texts := markdown(t)
	links := 0
	for path, text := range texts {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			links++
			to := path
			if target != "" {
				to = filepath.Join(filepath.Dir(path), target)
				_, err := os.Stat(to)
				require.NoError(t, err, "%s: [](%s)", path, m[1])
			}
			if anchor != "" {
				require.Contains(t, anchors(texts[to]), anchor, "%s: [](%s)", path, m[1])
			}
		}
	}
	require.Greater(t, links, 50)
	for path := range texts {
		led := !strings.HasPrefix(path, "docs/")
		for from, text := range texts {
			led = led || from != path && (strings.Contains(text, "("+path) || strings.HasPrefix(from, "docs/") && strings.Contains(text, "("+filepath.Base(path)))
		}
		require.True(t, led, "nothing leads to %s", path)
	}
}

// anchors returns the anchors of a text's headings, as GitHub makes them.
func anchors(text string) (found []string) {
	for line := range strings.Lines(fenced.ReplaceAllString(text, "")) {
		title, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !isHeading || !strings.HasPrefix(line, "#") {
			continue
		}
		found = append(found, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title)))
	}
	return found
}

var firstColumn = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// The runbook has each log line, and each error that callers may compare with.
func TestRunbookIsComplete(t *testing.T) {
	runbook, err := os.ReadFile("docs/runbook.md")
	require.NoError(t, err)
	var entries []string
	for _, m := range firstColumn.FindAllStringSubmatch(string(runbook), -1) {
		entries = append(entries, m[1])
	}
	logging, err := os.ReadFile("docs/logging.md")
	require.NoError(t, err)
	lines := firstColumn.FindAllStringSubmatch(string(logging), -1)
	require.Greater(t, len(lines), 15)
	var want []string
	for _, m := range lines {
		want = append(want, m[1])
	}
	want = append(want, exportedErrors(t)...)
	for _, w := range want {
		require.Contains(t, entries, w, "docs/runbook.md has no row for it")
	}
	for _, e := range entries {
		require.Contains(t, want, e, "docs/runbook.md has a row for what there is not")
	}
}

// exportedErrors returns the package's error values.
func exportedErrors(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			vars, ok := d.(*ast.GenDecl)
			if !ok || vars.Tok != token.VAR {
				continue
			}
			for _, spec := range vars.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					if strings.HasPrefix(name.Name, "Err") {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	slices.Sort(names)
	require.Contains(t, names, "ErrNotLocked")
	return names
}
