package redlock

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A lock's life is a value: the files it is made of have nothing to reach a server, a clock, a goroutine or a Locker with.
// So it can be copied, compared and taken through every order of events (explore_test.go).
func TestLifeReachesNothing(t *testing.T) {
	allowed := map[string]bool{"cmp": true, "errors": true, "fmt": true, "slices": true, "strconv": true, "strings": true, "time": true, "hash/fnv": true, "github.com/redlock-go/redlock/internal/roster": true}
	outside := map[string]bool{"Locker": true, "Guard": true, "Node": true, "Set": true, "listener": true, "receiver": true, "waiter": true, "place": true, "extender": true, "clock": true}
	for _, file := range []string{"life.go", "vote.go", "quorum.go", "drift.go", "clocks.go", "takeover.go", "ask.go", "resume.go", "electorate.go", "line.go", "slots.go", "obstacles.go", "limit.go", "risk.go", "fence.go", "internal/node/step.go", "internal/node/offset.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, imported := range parsed.Imports {
			path, err := strconv.Unquote(imported.Path.Value)
			require.NoError(t, err)
			require.True(t, allowed[path], "%s imports %s", file, path)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SendStmt, *ast.SelectStmt, *ast.ChanType:
				require.Fail(t, "not a value's", "%s: %T", file, n)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" {
					require.Contains(t, []string{"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second"}, n.Sel.Name, file)
				}
			case *ast.StarExpr:
				if x, ok := n.X.(*ast.Ident); ok {
					require.False(t, outside[x.Name], "%s speaks of a %s", file, x.Name)
				}
			}
			return true
		})
	}
}
