package configs

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// Identity returns a text that is the same for the same configuration: that of a named file, or that of
// the files of the user and of the project files that exist here. path is that of --config. A file of
// the user that is added later does not change it.
func Identity(path string) (string, error) {
	if named := cmp.Or(path, os.Getenv(config.PathEnv)); named != "" {
		full, err := filepath.Abs(named)
		return "file\x00" + full, err
	}
	found := []string{"user"}
	for _, p := range standardPlaces() {
		if p.dir == "" {
			continue
		}
		if _, err := os.Stat(p.path); err == nil {
			full, err := filepath.Abs(p.path)
			if err != nil {
				return "", err
			}
			found = append(found, full)
		}
	}
	return strings.Join(found, "\x00"), nil
}
