package echo

import (
	"encoding/json"
	"testing"
)

func TestWideToolsAreAboutAKilobyte(t *testing.T) {
	for _, i := range []int{0, 999} {
		description, schema := WideTool(i)
		if size := len(description) + len(schema); size < 1000 || size > 1200 {
			t.Errorf("tool %d has %d bytes, want about 1 KB", i, size)
		}
		if !json.Valid([]byte(schema)) {
			t.Errorf("tool %d: invalid schema %s", i, schema)
		}
	}
}
