package root

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

const (
	dashboardFile = "../../../../../../docs/dashboards/patchbay.json"
	alertsFile    = "../../../../../../docs/dashboards/alerts.yml"
)

// A grafanaDashboard is what the tests read of a dashboard.
type grafanaDashboard struct {
	UID, Title    string
	SchemaVersion int
	Panels        []grafanaPanel
	Templating    struct {
		List []struct{ Name, Type, Query string }
	}
	Annotations struct{ List []struct{ Name, Expr string } }
}

type grafanaPanel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Datasource               grafanaSource
	Targets                  []grafanaTarget
	FieldConfig              struct{ Defaults struct{ Unit string } }
}

type grafanaSource struct{ Type, UID string }

type grafanaTarget struct {
	Expr, LegendFormat, RefID string
	Datasource                grafanaSource
}

func readDashboard(t *testing.T) (d grafanaDashboard) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// queries returns the queries of the dashboard by the place where they are, with values in place of the
// variables.
func (d grafanaDashboard) queries() map[string]string {
	all := map[string]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all["panel "+p.Title+" "+target.RefID] = target.Expr
		}
	}
	for _, v := range d.Templating.List {
		if m := labelValues.FindStringSubmatch(v.Query); m != nil {
			all["variable "+v.Name] = "count by (" + m[2] + ") (" + m[1] + ")"
		}
	}
	for _, a := range d.Annotations.List {
		if a.Expr != "" {
			all["annotation "+a.Name] = a.Expr
		}
	}
	values := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*")
	for place, query := range all {
		all[place] = values.Replace(query)
	}
	return all
}

// labelValues is the query of a variable.
var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// alertQueries returns the queries of the alerts by name.
func alertQueries(t *testing.T) map[string]string {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	text, err := os.ReadFile(alertsFile)
	if err == nil {
		err = yaml.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			all[rule.Alert] = rule.Expr
		}
	}
	return all
}

// Grafana shows panels without a data source or with the same id wrongly, and says nothing.
func TestDashboardIsValid(t *testing.T) {
	d := readDashboard(t)
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 38 { // of Grafana 10
		t.Errorf("uid %q, title %q, schema version %d", d.UID, d.Title, d.SchemaVersion)
	}
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Type+" "+v.Name)
	}
	if want := []string{"datasource datasource", "query job", "query instance"}; !slices.Equal(names, want) {
		t.Errorf("variables %q, want %q", names, want)
	}
	source := grafanaSource{"prometheus", "${datasource}"}
	ids := map[int]bool{}
	cells := map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %q: id %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q is at the place of %q, or outside of the 24 columns", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || p.FieldConfig.Defaults.Unit == "" && p.Type != "heatmap" || p.Datasource != source ||
			len(p.Targets) == 0 {
			t.Errorf("panel %q: description %q, unit %q, data source %v, %d queries", p.Title, p.Description,
				p.FieldConfig.Defaults.Unit, p.Datasource, len(p.Targets))
		}
		for _, target := range p.Targets {
			selectors := strings.Count(target.Expr, "{")
			if target.Datasource != source || selectors == 0 ||
				strings.Count(target.Expr, `{job=~"$job", instance=~"$instance"`) != selectors {
				t.Errorf("panel %q: query %s does not choose job and instance", p.Title, target.Expr)
			}
		}
	}
}
