package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// A sharedExpression is an expression without variables of macros that rules contain. It is evaluated at
// most once for an action: rules of one policy read few arguments, many times. One that is the same for
// all requests for an item is evaluated once for a plan.
type sharedExpression struct {
	name   string // of the variable that replaces it
	index  int    // in activation.values, or in plan.values
	static bool
	node   interpreter.InterpretableV2
	needs  []*sharedExpression // static ones that it reads
}

// evaluateStatic returns the value of a static expression. A failure is an error value.
func (of *sharedExpression) evaluateStatic(act *activation) (out ref.Val) {
	defer func() {
		if r := recover(); r != nil { // as a program does
			out = types.NewErrWithNodeID(of.node.ID(), "internal error: %v", r)
		}
	}()
	// The evaluations of requests do not change an error that has an id.
	return types.LabelErrNode(of.node.ID(), interpreter.EvalActivation(act, of.node.Exec))
}

// A sharing finds the shared expressions of rules.
type sharing struct {
	env             *cel.Env
	forms           map[string]int // numbers of expressions with equal text
	uses            []int          // by form
	shared          map[int]*sharedExpression
	static, dynamic int // numbers of shared expressions
	rules           []sharingRule
}

// A sharingRule is a rule with what is known of its expressions, by id.
type sharingRule struct {
	*rule
	known map[int64]knownExpression
}

// A knownExpression describes an expression.
type knownExpression struct {
	form   int // noForm if it has no meaning of its own
	reads  bool
	static bool // the same for all requests for an item
}

const noForm = -1

// shareExpressions sets the programs of rules that have shared expressions in place of their own, except
// of rules whose cost is always measured.
func shareExpressions(env *cel.Env, rules []*rule) (static, dynamic int, err error) {
	s := &sharing{env: env, forms: map[string]int{}, shared: map[int]*sharedExpression{}}
	for _, r := range rules {
		if r.checked == nil || r.cheapUpTo == 0 {
			continue
		}
		of := sharingRule{r, map[int64]knownExpression{}}
		s.describe(of, r.checked.Expr(), nil)
		s.rules = append(s.rules, of)
	}
	for _, r := range s.rules {
		copied := ast.Copy(r.checked)
		if err := s.replace(r, copied, copied.Expr(), &r.needs); err != nil {
			return 0, 0, err
		}
		if r.quick, err = s.plan(copied); err != nil {
			return 0, 0, err
		}
		r.checked = nil // no longer needed
	}
	return s.static, s.dynamic, nil
}

// plan compiles an expression with variables of shared expressions. What it returns is evaluated without
// what a program does before and after each evaluation, which takes longer than most rules.
func (s *sharing) plan(a *ast.AST) (node interpreter.InterpretableV2, err error) {
	if e := a.Expr(); e.Kind() == ast.CallKind && slices.Contains(optimized, e.AsCall().FunctionName()) {
		const id = math.MaxInt64 // those of a rule are small
		a = ast.NewCheckedAST(ast.NewAST(ast.NewExprFactory().NewCall(id, operators.LogicalOr, e), a.SourceInfo()),
			a.TypeMap(), a.ReferenceMap())
		a.SetType(id, types.BoolType)
		a.SetReference(id, ast.NewFunctionReference(overloads.LogicalOr))
	}
	_, err = s.env.PlanProgram(a, cel.EvalOptions(cel.OptOptimize),
		cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
			replaced, err := s.decorate(i)
			node = replaced // the last one is the whole expression
			return replaced, err
		}))
	return node, err
}

// optimized are operations with a boolean value that the optimizer replaces. It does so after the
// decorator, so that they must not be the whole expression.
var optimized = []string{operators.In, operators.OldIn, overloads.Matches}

// decorate replaces variables of shared expressions, and comparisons of them with texts.
func (s *sharing) decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	attribute, ok := i.(interpreter.InterpretableAttribute)
	if !ok {
		return textNodeOf(i), nil
	}
	named, ok := attribute.Attr().(interpreter.NamespacedAttribute)
	if !ok || len(named.Qualifiers()) > 0 {
		return i, nil
	}
	for _, name := range named.CandidateVariableNames() {
		if n, ok := strings.CutPrefix(name, sharedPrefix); ok {
			form, err := strconv.Atoi(n)
			return &sharedNode{i.ID(), s.shared[form]}, err
		}
	}
	return i, nil
}

// sharedPrefix begins names of variables. No variable of a rule begins with it.
const sharedPrefix = "$"

// A sharedNode reads a shared expression.
type sharedNode struct {
	id int64
	of *sharedExpression
}

// ID returns the id of the expression that it replaces.
func (n *sharedNode) ID() int64 { return n.id }

// Exec returns the value.
func (n *sharedNode) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	act, ok := frame.Scope().(*activation)
	if !ok { // within a macro
		value, _ := frame.ResolveName(activationVariable)
		act = value.(*activation)
	}
	return act.valueOf(n.of)
}

// Eval returns the value.
func (n *sharedNode) Eval(vars cel.Activation) ref.Val {
	return interpreter.EvalActivation(vars, n.Exec)
}

// describe describes an expression and those in it. bound are the variables of macros.
func (s *sharing) describe(r sharingRule, e ast.Expr, bound []string) knownExpression {
	k := knownExpression{static: true}
	hasForm := true
	text := []any{e.Kind()}
	outer := bound
	switch e.Kind() {
	case ast.LiteralKind:
		text = append(text, e.AsLiteral().Type().TypeName(), e.AsLiteral().Value())
	case ast.IdentKind:
		text = append(text, e.AsIdent())
		if slices.Contains(bound, e.AsIdent()) {
			hasForm = false
		} else if v := variableOf(e.AsIdent()); v != nil {
			k.reads, k.static = true, v.field == 0
		}
	case ast.SelectKind:
		text = append(text, e.AsSelect().IsTestOnly(), e.AsSelect().FieldName())
	case ast.CallKind:
		text = append(text, e.AsCall().IsMemberFunction(), e.AsCall().FunctionName())
	case ast.ListKind:
		hasForm = len(e.AsList().OptionalIndices()) == 0
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			hasForm = hasForm && !entry.AsMapEntry().IsOptional()
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		bound = append(bound[:len(bound):len(bound)], c.IterVar(), c.IterVar2(), c.AccuVar())
		hasForm = false
	default:
		hasForm = false
	}
	for i, child := range children(e) {
		within := bound
		if i == 0 { // the range of a macro does not have its variables
			within = outer
		}
		of := s.describe(r, child, within)
		k.reads, k.static = k.reads || of.reads, k.static && of.static
		hasForm = hasForm && of.form != noForm
		text = append(text, of.form)
	}
	if k.form = noForm; hasForm {
		k.form = s.form(fmt.Sprintf("%#v", text))
	}
	r.known[e.ID()] = k
	return k
}

// form returns the number of expressions with a text, and counts this one.
func (s *sharing) form(text string) int {
	n, ok := s.forms[text]
	if !ok {
		n = len(s.forms)
		s.forms[text] = n
		s.uses = append(s.uses, 0)
	}
	s.uses[n]++
	return n
}

// replace replaces the shared expressions in a copy of a rule's expression by variables. It adds the
// static ones to needs.
func (s *sharing) replace(r sharingRule, a *ast.AST, e ast.Expr, needs *[]*sharedExpression) error {
	k := r.known[e.ID()]
	isCode := e.Kind() == ast.SelectKind || e.Kind() == ast.CallKind
	if !isCode || k.form == noForm || !k.reads || !k.static && s.uses[k.form] == 1 {
		for _, child := range children(e) {
			if err := s.replace(r, a, child, needs); err != nil {
				return err
			}
		}
		return nil
	}
	of := s.shared[k.form]
	if of == nil {
		var err error
		if of, err = s.share(r, a, e, k); err != nil {
			return err
		}
	}
	if *needs = append(*needs, of.needs...); of.static {
		*needs = append(*needs, of)
	}
	e.SetKindCase(ast.NewExprFactory().NewIdent(e.ID(), of.name))
	a.SetReference(e.ID(), ast.NewIdentReference(of.name, nil))
	a.SetType(e.ID(), types.DynType)
	return nil
}

// share adds a shared expression.
func (s *sharing) share(r sharingRule, a *ast.AST, e ast.Expr, k knownExpression) (*sharedExpression, error) {
	of := &sharedExpression{name: sharedPrefix + strconv.Itoa(k.form), static: k.static}
	own := ast.Copy(ast.NewCheckedAST(ast.NewAST(e, a.SourceInfo()), a.TypeMap(), a.ReferenceMap()))
	if !k.static {
		for _, child := range children(own.Expr()) {
			if err := s.replace(r, own, child, &of.needs); err != nil {
				return nil, err
			}
		}
	}
	var err error
	if of.node, err = s.plan(own); err != nil {
		return nil, err
	}
	number := &s.dynamic
	if of.static {
		number = &s.static
	}
	of.index = *number
	*number++
	s.shared[k.form] = of
	return of, nil
}

// children returns the expressions within an expression, except in literals of messages, which no rule
// can use.
func children(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.CallKind:
		if call := e.AsCall(); call.IsMemberFunction() {
			return append([]ast.Expr{call.Target()}, call.Args()...)
		}
		return e.AsCall().Args()
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		var all []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			all = append(all, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return all
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		return []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()}
	}
	return nil
}
