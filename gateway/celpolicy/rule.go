package celpolicy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// A ruleError is a mistake in a rule.
type ruleError struct {
	member string
	offset int // in bytes, in the text of the member
	text   string
}

// A variable is a variable of rules.
type variable struct {
	name string
	typ  *cel.Type
	// field is the member that the host must pass; zero if it is the same for all requests of a
	// caller for the same item.
	field   policy.Fields
	members []string // members that the variable always contains; nil means any
}

var object = cel.MapType(cel.StringType, cel.DynType)

var variables = [...]variable{
	{"caller", object, 0, []string{"subject", "issuer", "client", "scopes", "claims", "profile", "local"}},
	{"client", object, policy.FieldClient, []string{"name", "version"}},
	{"server", object, 0, []string{"name"}},
	{"tool", object, 0, []string{"name", "title", "description", "annotations"}},
	{"method", cel.StringType, 0, nil},
	{"target", cel.StringType, 0, nil},
	{"args", cel.DynType, policy.FieldArguments, nil},
	{"result", cel.DynType, policy.FieldResult, nil},
	{"question", object, policy.FieldQuestion, []string{"method", "params"}},
	{"now", cel.TimestampType, policy.FieldTime, nil},
	{"recent", cel.MapType(cel.StringType, cel.ListType(cel.StringType)), policy.FieldRecent, []string{"servers"}},
}

func variableOf(name string) *variable {
	if i := variableIndex(name); i >= 0 {
		return &variables[i]
	}
	return nil
}

// variableIndex returns the index of a variable in variables, or -1.
func variableIndex(name string) int {
	return slices.IndexFunc(variables[:], func(v variable) bool { return v.name == name })
}

const (
	// maxExpression and maxDepth limit the text that is parsed.
	maxExpression = 8 << 10
	maxDepth      = 64
)

func newEnv() (*cel.Env, error) {
	options := []cel.EnvOption{cel.ParserExpressionSizeLimit(maxExpression), cel.ParserRecursionLimit(maxDepth)}
	for _, v := range variables {
		options = append(options, cel.Variable(v.name, v.typ))
	}
	return cel.NewEnv(options...)
}

// newRule compiles a rule, and adds the members of variables that it reads.
func newRule(
	env *cel.Env, n int, given *gatewayconfig.PolicyRule, members *[len(variables)]memberNames,
) (*rule, *ruleError) {
	r := &rule{PolicyRule: *given, id: identify(given), do: outcomes[given.Do], asksExternal: given.Do == "hook"}
	if r.Name == "" {
		r.Name = fmt.Sprintf("rules[%d]", n)
	}
	for _, what := range r.Redact {
		one := policy.Redaction{Pointer: what, MustApply: r.Unredactable == "deny"}
		if what == "secrets" {
			one = policy.Redaction{}
		}
		r.redacts = append(r.redacts, one)
	}
	if r.When != "" {
		if err := r.compile(env, members); err != nil {
			return nil, err
		}
	}
	return r, r.check()
}

// compile compiles the expression of a rule.
func (r *rule) compile(env *cel.Env, members *[len(variables)]memberNames) *ruleError {
	checked, issues := env.Compile(r.When)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		return &ruleError{"when", offsetOf(r.When, first.Location.Line(), first.Location.Column()), first.Message}
	}
	if t := checked.OutputType(); !t.IsExactType(types.BoolType) && !t.IsExactType(types.DynType) {
		return &ruleError{"when", 0, fmt.Sprintf("the expression is of type %v, want bool", t)}
	}
	if err := r.read(checked.NativeRep()); err != nil {
		return err
	}
	estimate, err := env.EstimateCost(checked, sizes{})
	if err != nil {
		return &ruleError{"when", 0, err.Error()}
	}
	if estimate.Min > maxCost {
		return &ruleError{"when", 0, fmt.Sprintf("the expression costs at least %d, want at most %d", estimate.Min,
			maxCost)}
	}
	addMembers(members, checked.NativeRep().Expr())
	r.cheapUpTo = math.MaxInt
	if r.program, err = env.Program(checked, cel.EvalOptions(cel.OptOptimize)); err == nil && estimate.Max > maxCost {
		r.cheapUpTo = cheapUpTo(env, checked)
		r.bounded, err = env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost))
	}
	if err != nil {
		return &ruleError{"when", 0, err.Error()}
	}
	return nil
}

// cheapUpTo returns a size of messages of clients and servers, in bytes, up to which an expression
// must cost less than maxCost, or 0 if no size is known.
func cheapUpTo(env *cel.Env, checked *cel.Ast) int {
	for _, size := range []int{64 << 10, 4 << 10, 512} {
		if estimate, err := env.EstimateCost(checked, sizes{size}); err == nil && estimate.Max <= maxCost {
			return size
		}
	}
	return 0
}

// sizes estimates the sizes of variables and their members.
type sizes struct {
	most int // 0 if it is not known
}

// maxHints limits the depth for which sizes are estimated.
const maxHints = 8

// EstimateSize returns the size of a part of a variable.
func (s sizes) EstimateSize(node cost.AstNode) *cost.SizeEstimate {
	path := node.Path()
	if s.most == 0 || len(path) == 0 || len(path) > maxHints || variableIndex(path[0]) < 0 {
		return nil
	}
	return &cost.SizeEstimate{Max: uint64(s.most)}
}

// EstimateCallCost returns nil.
func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// read sets the variables that the expression reads. Members that a variable cannot contain are
// errors.
func (r *rule) read(checked *ast.AST) (failed *ruleError) {
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			name := e.AsIdent()
			if v := variableOf(name); v != nil {
				r.reads |= v.field
			}
			if failed == nil && strings.HasPrefix(name, ".") {
				text := fmt.Sprintf("a macro has a variable with the name of %s: rename it", name)
				failed = &ruleError{"when", 0, text}
			}
		case ast.SelectKind:
			of := e.AsSelect().Operand()
			if of.Kind() != ast.IdentKind {
				return
			}
			v := variableOf(of.AsIdent())
			name := e.AsSelect().FieldName()
			if failed == nil && v != nil && v.members != nil && !slices.Contains(v.members, name) {
				at := checked.SourceInfo().GetStartLocation(e.ID())
				failed = &ruleError{"when", offsetOf(r.When, at.Line(), at.Column()),
					fmt.Sprintf("unknown member %q of %s: want one of %s", name, v.name, strings.Join(v.members, ", "))}
			}
		}
	}))
	return failed
}

// check checks that the rule can decide about the actions that it is for.
func (r *rule) check() *ruleError {
	for _, kind := range r.kinds() {
		switch {
		case kind == policy.ActionList && (r.reads != 0 || r.asksExternal):
			return &ruleError{"when", 0,
				"what is listed cannot depend on client, args, result, question, now, recent or a hook"}
		case len(r.Redact) > 0 && kind != policy.ActionResult:
			return &ruleError{"redact", 0, "only results can be redacted: want \"on\": [\"result\"]"}
		case r.Do == "ask" && !slices.Contains(requests, kind), r.Do == "hide" && isResponse(kind):
			return &ruleError{"do", 0, fmt.Sprintf("a rule on %q cannot %s", kind, r.Do)}
		case r.reads&policy.FieldResult != 0 && kind != policy.ActionResult,
			r.reads&policy.FieldQuestion != 0 && kind != policy.ActionQuestion:
			return &ruleError{"when", 0, fmt.Sprintf(
				"a rule on %q reads a variable that only results or questions have", kind)}
		}
	}
	return nil
}

// isResponse reports whether an action is about a message from a server.
func isResponse(kind policy.ActionKind) bool {
	return kind == policy.ActionResult || kind == policy.ActionQuestion
}

// matches reports whether the rule applies. A failure is a match, unless the rule allows.
func (r *rule) matches(act *activation) (bool, error) {
	if r.When == "" {
		return true, nil
	}
	out, err := r.evaluate(act)
	if err == nil {
		if b, ok := out.(types.Bool); ok {
			return bool(b), nil
		}
		err = errors.New("the result is not true or false")
	}
	return r.Do != "allow", err
}

// evaluate returns the value of the expression of a rule. An evaluation that costs too much fails.
func (r *rule) evaluate(act *activation) (ref.Val, error) {
	if act.size > r.cheapUpTo {
		out, _, err := r.bounded.Eval(act)
		return out, err
	}
	out, _, err := r.program.Eval(act.frame)
	return out, err
}

// offsetOf returns the offset of a line, from 1, and a column, from 0, of a text.
func offsetOf(text string, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		next := strings.IndexByte(text[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	for ; column > 0 && at < len(text); column-- {
		_, n := utf8.DecodeRuneInString(text[at:])
		at += n
	}
	return at
}
