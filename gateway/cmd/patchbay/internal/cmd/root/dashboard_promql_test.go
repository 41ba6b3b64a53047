package root

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A labelSet has the values of the labels of a metric, by name of the label.
type labelSet map[string]map[string]bool

// A promQuery is a query of PromQL that is being parsed: the part of the language that the dashboard
// and the alerts use, which is every operator and function but no subqueries, offsets and @. The
// conformance tests run the same queries in Prometheus.
type promQuery struct {
	tokens []string
	// exposed are the metrics that exist, and their labels.
	exposed map[string]labelSet
	// metrics receives the metrics of the query.
	metrics map[string]bool
}

var promToken = regexp.MustCompile(`^(?:"(?:[^"\\]|\\.)*"|[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9.]+[smhd]?|` +
	`=~|!~|!=|==|<=|>=|[-+*/<>={}()\[\],])`)

// scrapeLabels are the labels that Prometheus adds to all metrics, and ownMetrics are its own.
var (
	scrapeLabels = []string{"job", "instance"}
	ownMetrics   = []string{"up"}
)

// checkQuery returns the labels of the result of a query, and an error if the query is invalid or has a
// metric, a label or a value of a label that does not exist. It adds the metrics of the query to used.
func checkQuery(text string, exposed map[string]labelSet, used map[string]bool) (labels map[string]bool, err error) {
	q := &promQuery{exposed: exposed, metrics: used}
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		token := promToken.FindString(rest)
		if token == "" {
			return nil, fmt.Errorf("invalid token at %q", rest)
		}
		q.tokens = append(q.tokens, token)
		rest = rest[len(token):]
	}
	defer func() {
		if failure, ok := recover().(queryError); ok {
			err = failure
		}
	}()
	labels = q.expression()
	if len(q.tokens) > 0 {
		q.fail("unexpected %q", q.tokens[0])
	}
	return labels, nil
}

type queryError string

func (e queryError) Error() string { return string(e) }

func (q *promQuery) fail(format string, args ...any) { panic(queryError(fmt.Sprintf(format, args...))) }

// peek returns the next token, or "" at the end.
func (q *promQuery) peek() string {
	if len(q.tokens) == 0 {
		return ""
	}
	return q.tokens[0]
}

func (q *promQuery) next() string {
	token := q.peek()
	if token == "" {
		q.fail("unexpected end of the query")
	}
	q.tokens = q.tokens[1:]
	return token
}

func (q *promQuery) skip(tokens ...string) bool {
	if slices.Contains(tokens, q.peek()) {
		q.next()
		return true
	}
	return false
}

func (q *promQuery) expect(token string) {
	if got := q.next(); got != token {
		q.fail("%q, want %q", got, token)
	}
}

// expression parses operands with operators between them. Precedence does not matter for names.
func (q *promQuery) expression() map[string]bool {
	labels := q.operand()
	for {
		operator := q.peek()
		if !slices.Contains([]string{"+", "-", "*", "/", "<", ">", "==", "!=", "<=", ">=", "and", "or", "unless"}, operator) {
			return labels
		}
		q.next()
		if q.skip("on", "ignoring") {
			q.names(labels)
			if q.skip("group_left", "group_right") && q.peek() == "(" {
				q.names(nil)
			}
		}
		right := q.operand()
		if operator == "or" || len(labels) == 0 {
			maps.Copy(labels, right)
		}
	}
}

var (
	promAggregations = []string{"sum", "min", "max", "avg", "count", "topk", "bottomk"}
	promFunctions    = []string{"rate", "increase", "changes", "histogram_quantile", "vector", "min_over_time"}
)

func (q *promQuery) operand() map[string]bool {
	token := q.next()
	switch {
	case token == "(":
		labels := q.expression()
		q.expect(")")
		return labels
	case token[0] >= '0' && token[0] <= '9', token[0] == '"':
		return map[string]bool{}
	case slices.Contains(promAggregations, token):
		return q.aggregation(token)
	case q.peek() == "(":
		if !slices.Contains(promFunctions, token) {
			q.fail("unknown function %q", token)
		}
		labels := q.arguments()
		if token == "histogram_quantile" && !labels["le"] {
			q.fail("histogram_quantile of a vector without the label le")
		}
		if token == "histogram_quantile" {
			delete(labels, "le")
		}
		return labels
	}
	return q.selector(token)
}

// aggregation parses sum by (a, b) (…), and the same with by at the end.
func (q *promQuery) aggregation(name string) map[string]bool {
	var by []string
	grouped := q.skip("by")
	if grouped {
		by = q.names(nil)
	}
	labels := q.arguments()
	if !grouped && q.skip("by") {
		grouped, by = true, q.names(nil)
	}
	if !grouped && strings.HasSuffix(name, "k") { // topk and bottomk keep the labels
		return labels
	}
	result := map[string]bool{}
	for _, label := range by {
		if !labels[label] {
			q.fail("%s by (%s): the vector has the labels %q only", name, label, slices.Sorted(maps.Keys(labels)))
		}
		result[label] = true
	}
	return result
}

// arguments parses (a, b), and returns the labels of all.
func (q *promQuery) arguments() map[string]bool {
	labels := map[string]bool{}
	q.expect("(")
	for !q.skip(")") {
		maps.Copy(labels, q.expression())
		if q.peek() != ")" {
			q.expect(",")
		}
	}
	return labels
}

// names parses (a, b). With of, the names must be among them.
func (q *promQuery) names(of map[string]bool) (all []string) {
	q.expect("(")
	for !q.skip(")") {
		name := q.next()
		if of != nil && !of[name] {
			q.fail("the vector has no label %q", name)
		}
		all = append(all, name)
		if q.peek() != ")" {
			q.expect(",")
		}
	}
	return all
}

// selector parses what follows the name of a metric: matchers, and the time of a range.
func (q *promQuery) selector(metric string) map[string]bool {
	q.metrics[metric] = true
	known := q.exposed[metric]
	if known == nil && !slices.Contains(ownMetrics, metric) {
		q.fail("metric %q does not exist", metric)
	}
	labels := map[string]bool{}
	for name := range known {
		labels[name] = true
	}
	for _, name := range scrapeLabels {
		labels[name] = true
	}
	if q.skip("{") {
		for !q.skip("}") {
			q.matcher(metric, known)
			if q.peek() != "}" {
				q.expect(",")
			}
		}
	}
	if q.skip("[") {
		if duration := q.next(); !regexp.MustCompile(`^\d+[smhd]$`).MatchString(duration) {
			q.fail("invalid duration %q", duration)
		}
		q.expect("]")
	}
	return labels
}

// matcher parses one matcher. A value of = and the alternatives of a pattern must exist.
func (q *promQuery) matcher(metric string, known labelSet) {
	label, operator, value := q.next(), q.next(), strings.Trim(q.next(), `"`)
	if !slices.Contains([]string{"=", "!=", "=~", "!~"}, operator) {
		q.fail("%s: invalid operator %q of label %s", metric, operator, label)
	}
	if slices.Contains(scrapeLabels, label) {
		return
	}
	if known[label] == nil {
		q.fail("metric %s has no label %q", metric, label)
	}
	for alternative := range strings.SplitSeq(value, "|") {
		if alternative != "" && !known[label][alternative] {
			q.fail("metric %s: no label %s has the value %q", metric, label, alternative)
		}
	}
}
