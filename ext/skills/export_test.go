package skills

import "encoding/json"

// ParseFrontmatter returns the frontmatter of a SKILL.md as a JSON object.
func ParseFrontmatter(file []byte) (json.RawMessage, error) {
	object, _, err := parseFrontmatter(file)
	return object, err
}
