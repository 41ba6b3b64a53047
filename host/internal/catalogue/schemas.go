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

// A Schema contains the parts of a tool's schemas that a host uses.
type Schema struct {
	Output  *schema.Schema       // nil if the tool declares no valid schema
	Headers []driver.HeaderParam // arguments that HTTP clients repeat
	Names   *fold.Names          // of the arguments; nil if the schema names no arguments
}

// Schema returns the parsed schemas of a tool. Calls for other tools do not wait while it parses them.
func (s *Store) Schema(item *Item) *Schema {
	s.mu.Lock()
	read, ok := s.schemas[item.Digest]
	if !ok {
		read = sync.OnceValue(func() *Schema { return readToolSchema(item) })
		if s.schemas == nil || len(s.schemas) >= maxToolSchemas {
			s.schemas = map[[sha256.Size]byte]func() *Schema{}
		}
		s.schemas[item.Digest] = read
	}
	s.mu.Unlock()
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
