package limits

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/status"
)

// Callers returns the figures of the callers in memory, sorted by principal.
func (l *Limits) Callers() []status.Caller {
	found := map[string]*status.Caller{}
	of := func(principal string) *status.Caller {
		c := found[principal]
		if c == nil {
			c = &status.Caller{Rates: []status.Rate{}}
			c.Issuer, c.Subject = parsePrincipal(principal)
			found[principal] = c
		}
		return c
	}
	l.rates.All(func(key rateKey, left float64) {
		if int(left) < key.rate.Burst && (key.server != "" || key.tool == "") {
			c := of(key.principal)
			c.Rates = append(c.Rates, status.Rate{Server: key.server, Tool: key.tool, Limit: key.rate.String(),
				Burst: key.rate.Burst, Left: max(0, int(left))})
		}
	})
	for principal, used := range l.budgets.today() {
		c := of(principal)
		c.Calls, c.Bytes = used.Calls, used.Bytes
	}
	all := make([]status.Caller, 0, len(found))
	for _, principal := range slices.Sorted(maps.Keys(found)) {
		c := found[principal]
		slices.SortFunc(c.Rates, func(a, b status.Rate) int {
			return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Tool, b.Tool))
		})
		all = append(all, *c)
	}
	return all
}

// today returns the usage of the callers in memory since midnight UTC, by all processes as far as this
// process knows.
func (b *budgets) today() map[string]usage {
	all := map[string]usage{}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.by.All(func(key budgetKey, used *budget) {
		if !now.Before(used.ends) {
			return
		}
		n, u := max(0, used.taken-used.granted)+used.spent, all[key.principal]
		if key.unit == "calls" {
			u.Calls = n
		} else {
			u.Bytes = n
		}
		all[key.principal] = u
	})
	return all
}

// parsePrincipal returns the parts of a key of [mcp.Principal.Key], which are empty for the local user.
func parsePrincipal(principal string) (issuer, subject string) {
	rest := strings.TrimPrefix(principal, LocalPrincipal)
	for _, part := range []*string{&issuer, &subject} {
		size, after, _ := strings.Cut(rest, ":")
		if n, err := strconv.Atoi(size); err == nil && n >= 0 && n <= len(after) {
			*part, rest = after[:n], after[n:]
		}
	}
	return issuer, subject
}
