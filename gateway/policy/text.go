package policy

import (
	"strings"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// A textNode compares a shared expression with a constant text. It is a third of the time that the node
// takes that it replaces, whose checks are for values of all types.
type textNode struct {
	interpreter.InterpretableV2 // for a value that is not a text
	of                          *sharedNode
	compare                     func(value, with string) bool
	with                        string
}

// comparisons are the functions of textNode, by their names in CEL.
var comparisons = map[string]func(value, with string) bool{
	overloads.StartsWith: strings.HasPrefix,
	overloads.EndsWith:   strings.HasSuffix,
	overloads.Contains:   strings.Contains,
	operators.Equals:     func(value, with string) bool { return value == with },
	operators.NotEquals:  func(value, with string) bool { return value != with },
}

// textNodeOf returns a textNode for a node, or the node itself.
func textNodeOf(i interpreter.InterpretableV2) interpreter.InterpretableV2 {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || comparisons[call.Function()] == nil {
		return i
	}
	arguments := call.Args()
	if len(arguments) != 2 {
		return i
	}
	of, isShared := arguments[0].(*sharedNode)
	constant, isConstant := arguments[1].(interpreter.InterpretableConst)
	if !isShared || !isConstant {
		return i
	}
	with, isText := constant.Value().(types.String)
	if !isText {
		return i
	}
	return &textNode{i, of, comparisons[call.Function()], string(with)}
}

// Exec returns the outcome.
func (n *textNode) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if value, ok := n.of.Exec(frame).(types.String); ok {
		return types.Bool(n.compare(string(value), n.with))
	}
	return n.InterpretableV2.Exec(frame)
}
