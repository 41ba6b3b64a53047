package policy

import (
	"bytes"
	"encoding/json"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/patchbay-mcp/patchbay/host"
)

// An activation has the values of variables for one action. They are made when a rule reads them.
type activation struct {
	policy *Policy
	action *host.Action
	plan   *plan                       // nil while it is made
	frame  *interpreter.ExecutionFrame // nil before it is needed
	values [len(variables)]any
	size   int // of what the action has, in bytes
	// probing: variables that differ between requests are unknown.
	probing bool
	shared  []ref.Val // by index of shared expression
}

func (p *Policy) newActivation(a *host.Action) *activation {
	act, ok := p.activations.Get().(*activation)
	if !ok {
		act = &activation{policy: p, shared: make([]ref.Val, p.dynamic)}
	}
	act.action = a
	return act
}

// release makes the activation available for another action.
func (a *activation) release() {
	if a.frame != nil {
		a.frame.Close()
	}
	clear(a.shared)
	*a = activation{policy: a.policy, shared: a.shared}
	a.policy.activations.Put(a)
}

// Parent returns nil.
func (*activation) Parent() cel.Activation { return nil }

// activationVariable is a name that has the activation itself as its value.
const activationVariable = sharedPrefix

// ResolveName returns the value of a variable.
func (a *activation) ResolveName(name string) (any, bool) {
	i := variableIndex(name)
	switch {
	case name == activationVariable:
		return a, true
	case i < 0:
		return nil, false
	}
	if a.probing && variables[i].field != 0 {
		return types.NewUnknown(1, nil), true
	}
	if a.plan != nil && a.plan.static[i] != nil {
		return a.plan.static[i], true
	}
	if a.values[i] == nil {
		a.values[i] = a.value(i)
	}
	return a.values[i], true
}

// valueOf returns the value of a shared expression.
func (a *activation) valueOf(of *sharedExpression) ref.Val {
	if of.static {
		if a.plan.values[of.index] == nil { // while the plan is made
			a.plan.values[of.index] = of.evaluateStatic(a)
		}
		return a.plan.values[of.index]
	}
	if a.probing {
		return interpreter.EvalActivation(a, of.node.Exec)
	}
	if a.shared[of.index] == nil {
		a.shared[of.index] = of.node.Exec(a.frame)
	}
	return a.shared[of.index]
}

// value returns the value of a variable, by its index.
func (a *activation) value(i int) any {
	of := a.action
	switch variables[i].name {
	case "caller":
		return callerValue(of.Caller)
	case "client":
		return map[string]any{"name": of.Client.Name, "version": of.Client.Version}
	case "server":
		return map[string]any{"name": of.Server}
	case "tool":
		return toolValue(of)
	case "method":
		return of.Method
	case "target":
		if of.LacksTool() {
			return errUnknownTool
		}
		return of.Target
	case "args":
		return a.policy.members[i].decode(of.Arguments)
	case "result":
		return a.policy.members[i].decode(of.Result)
	case "question":
		return withMembers(objectOf(of.Question), "method", "params")
	case "now":
		return of.Time
	}
	return map[string]any{"servers": append([]string{}, of.Recent...)} // recent
}

func callerValue(c *host.Caller) map[string]any {
	value := map[string]any{"subject": "", "issuer": "", "client": "", "scopes": []string{}, "claims": map[string]any{},
		"profile": "", "local": true}
	if c == nil {
		return value
	}
	value["profile"] = c.Profile
	if p := c.Principal; p != nil {
		value["subject"], value["issuer"], value["client"], value["local"] = p.Subject, p.Issuer, p.ClientID, false
		value["scopes"] = append([]string{}, p.Scopes...)
		if p.Claims != nil {
			value["claims"] = p.Claims
		}
	}
	return value
}

// hints are the annotations of tools, by their names in rules.
var hints = map[string]string{"title": "title", "readOnly": "readOnlyHint", "destructive": "destructiveHint",
	"idempotent": "idempotentHint", "openWorld": "openWorldHint"}

// errUnknownTool is the value of what is unknown about the tool of a task: rules that read it fail, so that
// they match unless they allow.
var errUnknownTool = types.NewErr("the tool of the task, or its definition, is unknown").(*types.Err)

// toolValue returns what the server declares. Members that it does not declare are null. Of a request
// for something else, tool.name is the name or URI of that.
func toolValue(a *host.Action) map[string]any {
	definition := objectOf(a.Definition)
	if a.LacksDefinition() {
		value := map[string]any{"name": a.Target, "title": errUnknownTool, "description": errUnknownTool,
			"annotations": errUnknownTool}
		if a.LacksTool() {
			value["name"] = errUnknownTool
		}
		return value
	}
	value := withMembers(map[string]any{"name": a.Target, "title": definition["title"],
		"description": definition["description"]})
	declared, _ := definition["annotations"].(map[string]any)
	annotations := map[string]any{}
	for name, member := range hints {
		annotations[name] = declared[member]
	}
	value["annotations"] = annotations
	return value
}

func withMembers(object map[string]any, names ...string) map[string]any {
	for _, name := range names {
		if _, ok := object[name]; !ok {
			object[name] = nil
		}
	}
	return object
}

// objectOf returns the value of a JSON object. Whole numbers keep all their digits, up to 64 bits.
func objectOf(raw json.RawMessage) map[string]any {
	if len(raw) == 0 {
		return map[string]any{}
	}
	if object, ok := decodeValue(raw).(map[string]any); ok {
		return object
	}
	return map[string]any{}
}

// decodeValue returns a value of JSON, nil for invalid text.
func decodeValue(raw []byte) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return nil
	}
	return plain(value)
}

// plain returns a value with numbers as CEL has them.
func plain(value any) any {
	switch value := value.(type) {
	case json.Number:
		if n, err := value.Int64(); err == nil && !strings.ContainsAny(string(value), ".eE") {
			return n
		}
		f, _ := value.Float64() // infinite if it is too large
		return f
	case map[string]any:
		for key, member := range value {
			value[key] = plain(member)
		}
	case []any:
		for i, element := range value {
			value[i] = plain(element)
		}
	}
	return value
}
