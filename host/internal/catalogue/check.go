package catalogue

import (
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/uritemplate"
)

// A shape specifies the types of an object's known members, as [jsonscan.Kind] returns them; 't'
// means any boolean. Clients decode whole lists strictly: an item with a wrong type would cost them
// all items of all servers. Null is accepted, because build removes it.
type shape struct {
	required string // a member that must be present, or ""
	members  map[string]byte
	elements map[string]*shape // of members that are arrays of objects
	objects  map[string]*shape // of members that are objects
}

var (
	icons       = &shape{"src", map[string]byte{"src": '"', "mimeType": '"', "sizes": 0}, nil, nil}
	annotations = &shape{"", map[string]byte{"audience": '[', "priority": '0', "lastModified": '"'}, nil, nil}
	hints       = &shape{"", map[string]byte{"title": '"', "readOnlyHint": 't', "destructiveHint": 't',
		"idempotentHint": 't', "openWorldHint": 't'}, nil, nil}
	arguments = &shape{"name", map[string]byte{"name": '"', "title": '"', "description": '"', "required": 't'},
		nil, nil}
)

// shapes holds the shape of the items of each kind.
var shapes = [Kinds]*shape{
	Tools: {"inputSchema", map[string]byte{"name": '"', "title": '"', "description": '"', "inputSchema": '{',
		"outputSchema": '{', "annotations": '{', "icons": '[', "execution": '{', "_meta": '{'},
		map[string]*shape{"icons": icons}, map[string]*shape{"annotations": hints}},
	Prompts: {"", map[string]byte{"name": '"', "title": '"', "description": '"', "arguments": '[', "icons": '[',
		"_meta": '{'},
		map[string]*shape{"icons": icons, "arguments": arguments}, nil},
	Resources: {"name", map[string]byte{"uri": '"', "name": '"', "title": '"', "description": '"', "mimeType": '"',
		"size": '0', "annotations": '{', "icons": '[', "_meta": '{'},
		map[string]*shape{"icons": icons}, map[string]*shape{"annotations": annotations}},
	Templates: {"name", map[string]byte{"uriTemplate": '"', "name": '"', "title": '"', "description": '"',
		"mimeType": '"', "annotations": '{', "icons": '[', "_meta": '{'},
		map[string]*shape{"icons": icons}, map[string]*shape{"annotations": annotations}},
	Events: {"delivery", map[string]byte{"name": '"', "description": '"', "delivery": '[', "inputSchema": '{',
		"payloadSchema": '{', "_meta": '{'}, nil, nil},
}

// check returns the name or URI of an item, if the item contains it, and an error if the item is
// invalid.
func check(kind Kind, raw []byte) (name string, err error) {
	if jsonscan.Kind(raw) != '{' {
		return "", errors.New("the item is not an object")
	}
	name = nameOf(kind, raw)
	if len(raw) > MaxItemBytes {
		return name, fmt.Errorf("the definition has %d bytes, want at most %d", len(raw), MaxItemBytes)
	}
	id, _ := jsonscan.Get(raw, kinds[kind].id)
	limit := MaxNameBytes
	if kind.isURI() {
		limit = uritemplate.MaxLength
	}
	switch {
	case name == "":
		return "", fmt.Errorf("missing %s: must be a string that is not empty", kinds[kind].id)
	case len(id) > limit+2:
		return name, fmt.Errorf("invalid %s: longer than %d bytes", kinds[kind].id, limit)
	}
	if err := shapes[kind].check(raw); err != nil {
		return name, err
	}
	switch kind {
	case Tools:
		schema, _ := jsonscan.Get(raw, "inputSchema")
		if t, ok := jsonscan.Get(schema, "type"); ok && string(t) != `"object"` {
			return name, fmt.Errorf(`invalid inputSchema: type is %.64s, must be "object"`, t)
		}
	case Events:
		if delivery, _ := jsonscan.Get(raw, "delivery"); !delivers(delivery, Push) && !delivers(delivery, Poll) {
			return name, fmt.Errorf("delivery %.64s contains neither %q nor %q", delivery, Push, Poll)
		}
	case Templates:
		if _, err := uritemplate.Parse(name); err != nil {
			return name, fmt.Errorf("invalid uriTemplate: %w", err)
		}
	}
	return name, nil
}

// check returns an error if the type of a known member of the object is wrong.
func (s *shape) check(obj []byte) error {
	found := s.required == ""
	for key, value := range jsonscan.Members(obj) {
		want, known := s.members[string(key)]
		kind := jsonscan.Kind(value)
		if !known || want == 0 || kind == 'n' {
			continue
		}
		if kind == 'f' {
			kind = 't'
		}
		if kind != want {
			return fmt.Errorf("invalid %s: must be %s", key, typeNames[want])
		}
		if string(key) == s.required {
			found = true
		}
		if o := s.objects[string(key)]; o != nil {
			if err := o.check(value); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		if e := s.elements[string(key)]; e != nil {
			if err := e.checkAll(value); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	if !found {
		return fmt.Errorf("missing %s", s.required)
	}
	return nil
}

var typeNames = map[byte]string{'"': "a string", '{': "an object", '[': "an array", '0': "a number", 't': "a boolean"}

func (s *shape) checkAll(array []byte) error {
	for e := range jsonscan.Elements(array) {
		if jsonscan.Kind(e) != '{' {
			return errors.New("an element is not an object")
		}
		if err := s.check(e); err != nil {
			return err
		}
	}
	return nil
}
