package patchbay_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const budgetsFile = "budgets.txt"

// A budget bounds an area of the code; see budgets.txt.
type budget struct {
	limit  int
	reason string
}

func parseBudgets(text string) (map[string]budget, error) {
	budgets := map[string]budget{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 5 {
			return nil, fmt.Errorf("%q: want an area, a number and a reason of at least three words", line)
		}
		limit, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, fmt.Errorf("%q: the second field must be a number", line)
		}
		if _, exists := budgets[fields[0]]; exists {
			return nil, fmt.Errorf("%q: the area has two lines", line)
		}
		budgets[fields[0]] = budget{limit, strings.Join(fields[2:], " ")}
	}
	return budgets, nil
}

func readBudgets(t *testing.T) map[string]budget {
	t.Helper()
	text, err := os.ReadFile(budgetsFile)
	if err != nil {
		t.Fatal(err)
	}
	budgets, err := parseBudgets(string(text))
	if err != nil {
		t.Fatalf("%s: %v", budgetsFile, err)
	}
	return budgets
}

// unjustifiedRaises returns the raises between the versions of the file, from the oldest to the
// newest, whose reason an earlier version already contains for the same area.
func unjustifiedRaises(versions []string) ([]string, error) {
	var raises []string
	current, reasons := map[string]int{}, map[string][]string{}
	for _, text := range versions {
		budgets, err := parseBudgets(text)
		if err != nil {
			return nil, err
		}
		for area, b := range budgets {
			before, known := current[area]
			used := slices.Contains(reasons[area], b.reason)
			if known && b.limit > before && used {
				raises = append(raises, fmt.Sprintf("%s was raised from %d to %d with the old reason %q", area, before,
					b.limit, b.reason))
			}
			current[area] = b.limit
			if !used {
				reasons[area] = append(reasons[area], b.reason)
			}
		}
	}
	slices.Sort(raises)
	return raises, nil
}

// TestBudgetsAreRaisedWithANewReason reads every version of budgets.txt that the repository contains,
// and the file itself.
func TestBudgetsAreRaisedWithANewReason(t *testing.T) {
	var versions []string
	commits, err := exec.Command("git", "rev-list", "--reverse", "HEAD", "--", budgetsFile).Output()
	if err != nil {
		t.Log("the history is missing, so only the file itself is checked:", err)
	}
	for commit := range strings.FieldsSeq(string(commits)) {
		text, err := exec.Command("git", "show", commit+":"+budgetsFile).Output()
		if err == nil { // fails for the commit that removes the file
			versions = append(versions, string(text))
		}
	}
	text, err := os.ReadFile(budgetsFile)
	if err != nil {
		t.Fatal(err)
	}
	raises, err := unjustifiedRaises(append(versions, string(text)))
	if err != nil {
		t.Fatalf("%s: %v", budgetsFile, err)
	}
	for _, raise := range raises {
		t.Errorf("%s: %s: write a new reason beside the number, or make the code smaller", budgetsFile, raise)
	}
}

func TestUnjustifiedRaises(t *testing.T) {
	const first = "# comment\n\nmcp 100 only what is needed\nhost 50 what a host needs\n"
	for _, test := range []struct {
		name     string
		versions []string
		want     []string
	}{
		{"same", []string{first, first}, nil},
		{"lowered", []string{first, "mcp 90 only what is needed\n"}, nil},
		{"new area", []string{first, first + "oauth 20 only what is needed\n"}, nil},
		{"raised with a new reason", []string{first, "mcp 110 sessions of the next revision\n"}, nil},
		{"raised with the same reason", []string{first, "mcp 110 only what is needed\n"},
			[]string{`mcp was raised from 100 to 110 with the old reason "only what is needed"`}},
		{"raised back", []string{first, "mcp 90 after the removal of sessions\n", "mcp 100 only what is needed\n"},
			[]string{`mcp was raised from 90 to 100 with the old reason "only what is needed"`}},
		{"removed and raised", []string{first, "host 50 what a host needs\n", "mcp 101 only what is needed\n"},
			[]string{`mcp was raised from 100 to 101 with the old reason "only what is needed"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := unjustifiedRaises(test.versions)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
	for _, text := range []string{"mcp 100\n", "mcp many of these words\n", first + first} {
		if _, err := unjustifiedRaises([]string{text}); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
}
