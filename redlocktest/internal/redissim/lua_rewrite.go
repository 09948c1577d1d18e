package redissim

import (
	"github.com/yuin/gopher-lua/ast"
)

// textOf is the hidden function that turns a number into the text Redis' Lua gives it and lets everything else pass. No
// script can name it.
const textOf = "\x00text"

// rewriteConcat wraps the operands of every `..` in textOf: gopher-lua prints 1732100000000001 where Lua 5.1 prints 1.7321e+15, and has no hook for it.
func rewriteConcat(list []ast.Stmt) {
	for _, stmt := range list {
		rewriteStmt(stmt)
	}
}

func rewriteStmt(stmt ast.Stmt) {
	switch s := stmt.(type) {
	case *ast.AssignStmt:
		rewriteList(s.Lhs)
		rewriteList(s.Rhs)
	case *ast.LocalAssignStmt:
		rewriteList(s.Exprs)
	case *ast.FuncCallStmt:
		rewriteExpr(s.Expr)
	case *ast.DoBlockStmt:
		rewriteConcat(s.Stmts)
	case *ast.WhileStmt:
		rewriteExpr(s.Condition)
		rewriteConcat(s.Stmts)
	case *ast.RepeatStmt:
		rewriteExpr(s.Condition)
		rewriteConcat(s.Stmts)
	case *ast.IfStmt:
		rewriteExpr(s.Condition)
		rewriteConcat(s.Then)
		rewriteConcat(s.Else)
	case *ast.NumberForStmt:
		rewriteExpr(s.Init)
		rewriteExpr(s.Limit)
		rewriteExpr(s.Step)
		rewriteConcat(s.Stmts)
	case *ast.GenericForStmt:
		rewriteList(s.Exprs)
		rewriteConcat(s.Stmts)
	case *ast.FuncDefStmt:
		rewriteConcat(s.Func.Stmts)
	case *ast.ReturnStmt:
		rewriteList(s.Exprs)
	}
}

func rewriteList(list []ast.Expr) {
	for _, expr := range list {
		rewriteExpr(expr)
	}
}

func rewriteExpr(expr ast.Expr) {
	switch e := expr.(type) {
	case *ast.AttrGetExpr:
		rewriteExpr(e.Object)
		rewriteExpr(e.Key)
	case *ast.TableExpr:
		for _, f := range e.Fields {
			rewriteExpr(f.Key)
			rewriteExpr(f.Value)
		}
	case *ast.FuncCallExpr:
		rewriteExpr(e.Func)
		rewriteExpr(e.Receiver)
		rewriteList(e.Args)
	case *ast.LogicalOpExpr:
		rewriteExpr(e.Lhs)
		rewriteExpr(e.Rhs)
	case *ast.RelationalOpExpr:
		rewriteExpr(e.Lhs)
		rewriteExpr(e.Rhs)
	case *ast.ArithmeticOpExpr:
		rewriteExpr(e.Lhs)
		rewriteExpr(e.Rhs)
	case *ast.UnaryMinusOpExpr:
		rewriteExpr(e.Expr)
	case *ast.UnaryNotOpExpr:
		rewriteExpr(e.Expr)
	case *ast.UnaryLenOpExpr:
		rewriteExpr(e.Expr)
	case *ast.FunctionExpr:
		rewriteConcat(e.Stmts)
	case *ast.StringConcatOpExpr:
		rewriteExpr(e.Lhs)
		rewriteExpr(e.Rhs)
		e.Lhs = asText(e.Lhs)
		e.Rhs = asText(e.Rhs)
	}
}

func asText(expr ast.Expr) ast.Expr {
	switch expr.(type) {
	case *ast.StringExpr, *ast.StringConcatOpExpr:
		return expr
	}
	name := &ast.IdentExpr{Value: textOf}
	call := &ast.FuncCallExpr{Func: name, Args: []ast.Expr{expr}, AdjustRet: true}
	for _, node := range []ast.PositionHolder{name, call} {
		node.SetLine(expr.Line())
		node.SetLastLine(expr.LastLine())
	}
	return call
}
