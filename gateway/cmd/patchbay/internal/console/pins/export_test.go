package pins

import "encoding/json"

// Compared returns how many comparisons the forms, as pairs of digests of definitions, take.
func Compared(pairs [][2]string, definition func(digest string) json.RawMessage) (n int) {
	var c changes
	seen := map[*member]bool{}
	for _, pair := range pairs {
		old := &form{Digest: pair[0], Definition: definition(pair[0])}
		now := &form{Digest: pair[1], Definition: definition(pair[1])}
		seen[&c.of(&pin{Name: pair[1]}, old, now).Members[0]] = true
	}
	return len(seen)
}

// Members returns the text of each member of a definition, as the comparison names the members.
func Members(definition json.RawMessage) map[string]string {
	all := map[string]string{}
	for name, value := range membersOf(definition) {
		all[name] = string(value)
	}
	return all
}
