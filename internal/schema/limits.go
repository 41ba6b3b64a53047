package schema

import (
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// CheckSize returns an error if a schema exceeds the limits of size, without compiling it.
func CheckSize(raw []byte) error {
	if len(raw) > MaxBytes {
		return fmt.Errorf("invalid schema: %d bytes, at most %d are allowed", len(raw), MaxBytes)
	}
	nodes := 0
	return countNodes(raw, &nodes)
}

// countNodes adds the number of objects of a schema to nodes, and limits the length of its arrays.
func countNodes(raw []byte, nodes *int) error {
	switch jsonscan.Kind(raw) {
	case '{':
		if *nodes++; *nodes > MaxNodes {
			return fmt.Errorf("invalid schema: more than %d objects", MaxNodes)
		}
		for _, value := range jsonscan.Members(raw) {
			if err := countNodes(value, nodes); err != nil {
				return err
			}
		}
	case '[':
		n := 0
		for value := range jsonscan.Elements(raw) {
			if n++; n > MaxEnum {
				return fmt.Errorf("invalid schema: an array has more than %d values", MaxEnum)
			}
			if err := countNodes(value, nodes); err != nil {
				return err
			}
		}
	}
	return nil
}
