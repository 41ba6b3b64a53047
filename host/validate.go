package host

import (
	"crypto/sha256"
	"errors"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/fold"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// maxToolSchemas bounds the tools of one server whose schemas are kept.
const maxToolSchemas = 1000

// A toolSchemas has what the schemas of the tools of a server say, by the digest of the definition.
// It is safe for concurrent use.
type toolSchemas struct {
	mu    sync.Mutex                               // guards tools
	tools map[[sha256.Size]byte]func() *toolSchema // to be called without mu
}

type toolSchema struct {
	output  *schema.Schema       // nil if the tool has none or an invalid one
	headers []driver.HeaderParam // arguments that HTTP clients repeat
	names   *fold.Names          // of the arguments; nil if the schema names none
}

// of returns the parsed schemas of a tool. Calls for other tools do not wait while it parses them.
func (t *toolSchemas) of(item *catalogue.Item) *toolSchema {
	t.mu.Lock()
	read, ok := t.tools[item.Digest]
	if !ok {
		read = sync.OnceValue(func() *toolSchema { return readToolSchema(item) })
		if t.tools == nil || len(t.tools) >= maxToolSchemas {
			t.tools = map[[sha256.Size]byte]func() *toolSchema{}
		}
		t.tools[item.Digest] = read
	}
	t.mu.Unlock()
	return read()
}

func readToolSchema(item *catalogue.Item) *toolSchema {
	s := &toolSchema{}
	if raw, ok := jsonscan.Get(item.Raw, "outputSchema"); ok {
		s.output, _ = schema.Compile(raw) // the server validates with its own
	}
	input, _ := jsonscan.Get(item.Raw, "inputSchema")
	s.headers, _ = driver.HeaderParamsOf(input) // clients do not call a tool whose annotations are invalid
	s.names = fold.Of(input)
	if item.Kind == catalogue.Prompts {
		s.names = promptNames(item.Raw)
	}
	return s
}

// promptNames returns the names of the arguments of a prompt.
func promptNames(definition []byte) *fold.Names {
	arguments, _ := jsonscan.Get(definition, "arguments")
	var names []string
	for argument := range jsonscan.Elements(arguments) {
		names = append(names, jsonscan.GetString(argument, "name"))
	}
	return fold.Named(names)
}

// checkNames refuses arguments whose names the server could confuse with other names: the policy
// would decide about one argument, and the server would use the other.
func checkNames(c *call.Call, req *mcp.Request) error {
	arguments, ok := req.Param("arguments")
	if !ok || c.Kind != policy.ActionCall && c.Kind != policy.ActionGet {
		return nil
	}
	names, hidden := &fold.Names{}, []string(nil)
	if c.Item != nil {
		hidden = c.Item.HiddenArguments()
		if known := poolOf(c).Schemas().of(c.Item).names; known != nil {
			names = known
		}
	}
	err := names.Check(arguments)
	if err == nil && len(hidden) > 0 {
		err = fold.Named(hidden).Check(arguments)
	}
	if err != nil {
		return mcp.Errorf(mcp.CodeInvalidParams, "invalid params.arguments: %v", err)
	}
	return nil
}

// headerParams returns the arguments of a call that HTTP clients repeat in headers.
func headerParams(c *call.Call) []driver.HeaderParam {
	if c.Item == nil || c.Item.Kind != catalogue.Tools {
		return nil
	}
	return poolOf(c).Schemas().of(c.Item).headers
}

// validate logs a result that does not match the output schema of its tool. Spec: server/tools,
// Output Schema.
func (v *View) validate(r *call.Call, raw []byte) {
	if r.Item == nil || r.Item.Kind != catalogue.Tools || poolOf(r).Settings().Validate == config.ValidateOff {
		return
	}
	s := poolOf(r).Schemas().of(r.Item).output
	if s == nil {
		return
	}
	if isError, _ := jsonscan.Get(raw, "isError"); string(isError) == "true" {
		return
	}
	content, ok := jsonscan.Get(raw, "structuredContent")
	err := errors.New("missing structuredContent")
	if ok {
		err = s.Validate(content)
	}
	if err != nil {
		v.host.opts.Logger.Warn("host: result does not match the output schema of the tool",
			"server", poolOf(r).Name(), "tool", r.Target, "error", err)
	}
}
