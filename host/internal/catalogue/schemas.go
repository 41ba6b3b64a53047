package catalogue

import (
	"crypto/sha256"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/fold"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// maxToolSchemas limits the tools of a server whose schemas are kept.
const maxToolSchemas = 1000

// Schemas holds the parsed schemas of the tools of a server, by the digest of the definition.
// It is safe for concurrent use.
type Schemas struct {
	mu    sync.Mutex                           // guards tools
	tools map[[sha256.Size]byte]func() *Schema // to be called without mu
}

// A Schema contains the parts of a tool's schemas that a host uses.
type Schema struct {
	Output  *schema.Schema       // nil if the tool declares no valid schema
	Headers []driver.HeaderParam // arguments that HTTP clients repeat
	Names   *fold.Names          // of the arguments; nil if the schema names no arguments
}

// Of returns the parsed schemas of a tool. Calls for other tools do not wait while it parses them.
func (t *Schemas) Of(item *Item) *Schema {
	t.mu.Lock()
	read, ok := t.tools[item.Digest]
	if !ok {
		read = sync.OnceValue(func() *Schema { return readToolSchema(item) })
		if t.tools == nil || len(t.tools) >= maxToolSchemas {
			t.tools = map[[sha256.Size]byte]func() *Schema{}
		}
		t.tools[item.Digest] = read
	}
	t.mu.Unlock()
	return read()
}

func readToolSchema(item *Item) *Schema {
	s := &Schema{}
	if raw, ok := jsonscan.Get(item.Raw, "outputSchema"); ok {
		s.Output, _ = schema.Compile(raw) // the server validates with its own
	}
	input, _ := jsonscan.Get(item.Raw, "inputSchema")
	s.Headers, _ = driver.HeaderParamsOf(input) // clients do not call a tool whose annotations are invalid
	s.Names = fold.Of(input)
	if item.Kind == Prompts {
		s.Names = promptNames(item.Raw)
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
