package host

import "encoding/json"

// mustJSON returns the JSON of a value of this package.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // no such type is used
	}
	return b
}
