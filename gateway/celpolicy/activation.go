package celpolicy

import (
	"bytes"
	"encoding/json"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"

	"github.com/patchbay-mcp/patchbay/host/policy"
)

// An activation holds the values of variables for an action. A value is computed when a rule reads
// it.
type activation struct {
	policy *Policy
	action *policy.Action
	plan   *plan                       // nil while it is made
	frame  *interpreter.ExecutionFrame // of the activation, shared by the evaluations of all rules
	values [len(variables)]any
	size   int // upper bound of the length of each text of the action, in bytes
}

// Parent returns nil.
func (*activation) Parent() cel.Activation { return nil }

// ResolveName returns the value of a variable. While a plan is made, variables that differ between
// requests are unknown.
func (a *activation) ResolveName(name string) (any, bool) {
	i := variableIndex(name)
	switch {
	case i < 0:
		return nil, false
	case a.plan == nil && variables[i].field != 0:
		return types.NewUnknown(1, nil), true
	case a.plan != nil && variables[i].field == 0:
		return a.plan.static[i], true
	case a.values[i] == nil:
		a.values[i] = converted(a.value(i))
	}
	return a.values[i], true
}

// converted converts the texts of an object once for all rules: each conversion allocates, and 200 rules
// that read an argument would take 7 µs longer.
func converted(value any) any {
	if object, ok := value.(map[string]any); ok {
		for name, member := range object {
			if text, ok := member.(string); ok {
				object[name] = types.String(text)
			}
		}
	}
	return value
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

func callerValue(c *policy.Caller) map[string]any {
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

// errUnknownTool is the value of members of tool that are unknown for a task. Rules that read such a member
// fail, so that they match unless they allow.
var errUnknownTool = types.NewErr("the tool of the task, or its definition, is unknown").(*types.Err)

// toolValue returns the declaration of the server. Members that the server does not declare are
// null. For a request without a tool, tool.name contains the name or URI of the request's item.
func toolValue(a *policy.Action) map[string]any {
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

// plain returns a value whose numbers are CEL numbers.
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
