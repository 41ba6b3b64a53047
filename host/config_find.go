package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// ConfigEnv is the environment variable that names a configuration file.
const ConfigEnv = "PATCHBAY_CONFIG"

// ConfigFiles returns the files in which a name is looked for, the first one that has it wins: path, if it is not empty,
// else the file that the environment variable [ConfigEnv] names, else .mcp.json and mcp.json in the current folder and
// patchbay/mcp.json in the user's folder for configuration.
func ConfigFiles(path string) []string {
	if path == "" {
		path = os.Getenv(ConfigEnv)
	}
	if path != "" {
		return []string{path}
	}
	files := []string{".mcp.json", "mcp.json"}
	if dir, err := os.UserConfigDir(); err == nil {
		files = append(files, filepath.Join(dir, "patchbay", "mcp.json"))
	}
	return files
}

// LoadConfigs reads the files of [ConfigFiles] that there are. A path that was asked for, here or by the environment, has
// to be there. One file that cannot be read does not hide the others: the error joins what went wrong, beside what was
// read.
func LoadConfigs(path string) ([]*Config, error) {
	asked := path != "" || os.Getenv(ConfigEnv) != ""
	var configs []*Config
	var errs []error
	for _, file := range ConfigFiles(path) {
		c, err := LoadConfig(file)
		switch {
		case err == nil:
			configs = append(configs, c)
		case asked || !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return configs, errors.Join(errs...)
}
