package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

const headerKeyword = "x-mcp-header"

// A HeaderParam is a property whose value clients repeat in an HTTP header.
type HeaderParam struct {
	Path   []string // names from the root down
	Header string   // the part of the header's name after "Mcp-Param-"
	Type   string   // string, integer or boolean
}

// Headers returns the properties with an x-mcp-header annotation, in the order of the schema. The
// error names an invalid annotation: it is not a header name, occurs twice (ignoring case), is on a
// property with a type other than string, integer, boolean and null, or is below a keyword other
// than properties.
//
// Spec: basic/transports/streamable-http#custom-headers-from-tool-parameters (2026-07-28).
func (s *Schema) Headers() ([]HeaderParam, error) {
	var params []HeaderParam
	reached := map[*node]bool{}
	var visit func(n *node, path []string) error
	visit = func(n *node, path []string) error {
		reached[n] = true
		if n.header != nil {
			p, err := headerParam(n, path)
			if err != nil {
				return err
			}
			same := func(other HeaderParam) bool { return strings.EqualFold(other.Header, p.Header) }
			if slices.ContainsFunc(params, same) {
				return fmt.Errorf("%s: %s %q occurs twice", strings.Join(path, "."), headerKeyword, p.Header)
			}
			params = append(params, p)
		}
		if n.object == nil {
			return nil
		}
		for _, p := range n.object.properties {
			if p.node == nil {
				continue
			}
			if err := visit(p.node, append(slices.Clip(path), p.name)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := visit(s.root, nil); err != nil {
		return nil, err
	}
	for _, n := range s.all {
		if n.header != nil && !reached[n] {
			return nil, fmt.Errorf("%s %s is not on a property that is reached from the root by properties alone",
				headerKeyword, n.header)
		}
	}
	return params, nil
}

func headerParam(n *node, path []string) (HeaderParam, error) {
	fail := func(want string) (HeaderParam, error) {
		return HeaderParam{}, fmt.Errorf("%s: %s %s: %s", strings.Join(path, "."), headerKeyword, shown(n.header), want)
	}
	name, err := stringValue(n.header)
	if err != nil || !netx.IsToken(name) {
		return fail("want a header name: letters, digits and !#$%&'*+-.^_`|~")
	}
	types := (n.types &^ typeNull).names()
	if len(path) == 0 || len(types) != 1 || !slices.Contains([]string{"string", "integer", "boolean"}, types[0]) {
		return fail("want a property whose type is string, integer or boolean")
	}
	return HeaderParam{Path: path, Header: name, Type: types[0]}, nil
}
