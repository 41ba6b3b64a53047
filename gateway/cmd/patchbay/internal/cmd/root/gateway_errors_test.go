package root

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The help lists the codes that have a page.
func TestHelpErrorsListsTheCodes(t *testing.T) {
	files, err := filepath.Glob("../../../../../../docs/errors/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var pages, listed []string
	for _, name := range files {
		if name := strings.TrimSuffix(filepath.Base(name), ".md"); name != "README" {
			pages = append(pages, name)
		}
	}
	o := patchbay(t, "", "help", "errors")
	for _, row := range regexp.MustCompile(`(?m)^  (\w+)  +\w`).FindAllStringSubmatch(o.stdout, -1) {
		listed = append(listed, row[1])
	}
	slices.Sort(pages)
	slices.Sort(listed)
	if len(pages) == 0 || !slices.Equal(pages, listed) {
		t.Errorf("help errors lists %q, docs/errors has %q", listed, pages)
	}
}
