package celpolicy

import (
	"encoding/json"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

// memberNames are names of members of an object; nil means all members. Decoding only the members that
// rules read saves 85 µs per call with an argument of 9 KiB.
type memberNames map[string]bool

// noMembers returns a set of members for each variable: only members that rules read are decoded.
func noMembers() (all [len(variables)]memberNames) {
	for i := range all {
		all[i] = memberNames{}
	}
	return all
}

// addMembers adds the members of variables that an expression reads. If a variable of a macro
// shares the name of a variable, its members count as members of the latter.
func addMembers(all *[len(variables)]memberNames, e ast.Expr) {
	operands := map[int64]bool{} // ids of expressions whose members are read
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		of, name, isMember := memberOf(e)
		if isMember && of.Kind() == ast.IdentKind {
			operands[of.ID()] = true
			if i := variableIndex(of.AsIdent()); i >= 0 && all[i] != nil {
				all[i][name] = true
			}
		}
		if e.Kind() == ast.IdentKind && !operands[e.ID()] {
			if i := variableIndex(e.AsIdent()); i >= 0 {
				all[i] = nil
			}
		}
	}))
}

// memberOf returns the operand and the name of an expression that selects a member.
func memberOf(e ast.Expr) (of ast.Expr, name string, ok bool) {
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().Operand(), e.AsSelect().FieldName(), true
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Index || len(call.Args()) != 2 || call.Args()[1].Kind() != ast.LiteralKind {
			return nil, "", false
		}
		text, ok := call.Args()[1].AsLiteral().(types.String)
		return call.Args()[0], string(text), ok
	}
	return nil, "", false
}

// decode returns the value of a JSON object with only the members that rules read.
func (names memberNames) decode(raw json.RawMessage) map[string]any {
	if names == nil {
		return objectOf(raw)
	}
	if rawjson.Kind(raw) != '{' {
		return map[string]any{}
	}
	if rawjson.Valid(raw) != nil { // objectOf accepts more
		return objectOf(raw)
	}
	object := make(map[string]any, len(names))
	for name, value := range rawjson.Members(raw) {
		if names[string(name)] {
			object[string(name)] = valueOf(value)
		}
	}
	return object
}

// valueOf returns the value of JSON that is known to be valid.
func valueOf(raw []byte) any {
	switch rawjson.Kind(raw) {
	case '"':
		text, _ := rawjson.Unquote(raw)
		return text
	case '0':
		return plain(json.Number(raw))
	}
	return decodeValue(raw)
}
