package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
)

// A fieldWriter is a field and the packages that write it.
type fieldWriter struct {
	field    string // with its type, as in call.Call.Action
	packages []string
}

// A structField identifies a field. Objects cannot: the same type is one object where it is
// declared, and another where it is imported.
type structField struct{ pkg, typ, name string }

// fieldWriters returns the fields of the struct types of that name, with the packages that write
// them. It reports whether packages declare such a type.
func fieldWriters(packages []*loaded, typeName string) ([]fieldWriter, bool) {
	declared := false
	for _, p := range packages {
		if t, ok := p.types.Scope().Lookup(typeName).(*types.TypeName); ok {
			_, isStruct := t.Type().Underlying().(*types.Struct)
			declared = declared || isStruct
		}
	}
	writers := map[structField]map[string]bool{}
	for _, p := range packages {
		for _, file := range p.syntax {
			ast.Inspect(file, func(n ast.Node) bool {
				for _, f := range p.written(n) {
					if f.typ != typeName {
						continue
					}
					if writers[f] == nil {
						writers[f] = map[string]bool{}
					}
					writers[f][p.name] = true
				}
				return true
			})
		}
	}
	var result []fieldWriter
	for f, names := range writers {
		result = append(result, fieldWriter{f.pkg + "." + f.typ + "." + f.name, slices.Sorted(maps.Keys(names))})
	}
	slices.SortFunc(result, func(a, b fieldWriter) int { return strings.Compare(a.field, b.field) })
	return result, declared
}

// written returns the fields that a statement or expression writes.
func (p *loaded) written(n ast.Node) []structField {
	var fields []structField
	switch n := n.(type) {
	case *ast.AssignStmt:
		for _, target := range n.Lhs {
			fields = append(fields, p.target(target)...)
		}
	case *ast.IncDecStmt:
		fields = p.target(n.X)
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			fields = append(p.target(n.Key), p.target(n.Value)...)
		}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			fields = p.target(n.X)
		}
	case *ast.SelectorExpr:
		if p.takesAddress(n) {
			fields = p.target(n.X)
		}
	case *ast.CompositeLit:
		fields = p.literal(n)
	}
	return fields
}

// takesAddress reports whether e selects a method with a pointer receiver from a variable that is
// not a pointer.
func (p *loaded) takesAddress(e *ast.SelectorExpr) bool {
	selection := p.info.Selections[e]
	if selection == nil || selection.Kind() != types.MethodVal || isPointer(selection.Recv()) {
		return false
	}
	return isPointer(selection.Obj().(*types.Func).Signature().Recv().Type())
}

func isPointer(t types.Type) bool {
	_, ok := t.Underlying().(*types.Pointer)
	return ok
}

// target returns the fields that are written if e is assigned to: in c.Action.Name, the field Name
// of the action, and Action of c unless it is a pointer.
func (p *loaded) target(e ast.Expr) []structField {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return p.target(e.X)
	case *ast.IndexExpr:
		return p.target(e.X)
	case *ast.SelectorExpr:
		selection := p.info.Selections[e]
		if selection == nil || selection.Kind() != types.FieldVal {
			return nil
		}
		fields := p.target(e.X)
		if isPointer(p.info.TypeOf(e.X)) {
			fields = nil
		}
		if owner, field := fieldOwner(selection); owner != nil {
			fields = append(fields, structField{owner.Obj().Pkg().Path(), owner.Obj().Name(), field})
		}
		return fields
	}
	return nil
}

// fieldOwner returns the type that declares a selected field, also if the selection passes embedded
// structs. It returns nil for a field of an unnamed struct.
func fieldOwner(selection *types.Selection) (*types.Named, string) {
	current := selection.Recv()
	var owner *types.Named
	var field *types.Var
	for _, i := range selection.Index() {
		if pointer, ok := current.Underlying().(*types.Pointer); ok {
			current = pointer.Elem()
		}
		owner, _ = types.Unalias(current).(*types.Named)
		s, ok := current.Underlying().(*types.Struct)
		if !ok {
			return nil, ""
		}
		field = s.Field(i)
		current = field.Type()
	}
	if owner == nil || owner.Obj().Pkg() == nil {
		return nil, ""
	}
	return owner, field.Name()
}

// literal returns the fields that a composite literal sets.
func (p *loaded) literal(lit *ast.CompositeLit) []structField {
	t := p.info.TypeOf(lit)
	if pointer, ok := t.Underlying().(*types.Pointer); ok { // an element of []*T{{…}}
		t = pointer.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return nil
	}
	s, ok := named.Underlying().(*types.Struct)
	if !ok {
		return nil
	}
	var fields []structField
	for i, element := range lit.Elts {
		name := s.Field(min(i, s.NumFields()-1)).Name()
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			key, isName := pair.Key.(*ast.Ident)
			if !isName {
				continue
			}
			name = key.Name
		}
		fields = append(fields, structField{named.Obj().Pkg().Path(), named.Obj().Name(), name})
	}
	return fields
}
