package otelmcp

import "github.com/patchbay-mcp/patchbay/host"

// readHost returns the figures of a host. Its servers are labels: the configuration bounds their number.
func readHost(st host.Stats) []reading {
	all := []reading{
		{metric: metricSpilled, n: st.Spilled},
		{metric: metricSpilledSize, n: st.SpilledBytes},
		{metric: metricRecordsWaiting, n: st.RecordsWaiting},
		{metric: metricRecordsLost, n: count(st.RecordsLost)},
	}
	for name, s := range st.ByServer {
		all = append(all, readServer(label{attrServer, name}, &s)...)
	}
	for kind, n := range st.Decisions {
		labels := [2]label{{attrKind, string(kind.About)}, {attrEffect, kind.Effect}}
		all = append(all, reading{metricDecisions, labels, count(n)})
	}
	for outcome, n := range st.Approvals {
		all = append(all, one(metricApprovals, attrOutcome, outcome, count(n)))
	}
	return all
}

func readServer(name label, s *host.ServerStats) []reading {
	two := func(metric, attr, value string, n int) reading {
		return reading{metric, [2]label{name, {attr, value}}, n}
	}
	all := []reading{
		two(metricServers, attrState, string(s.State), 1),
		{metricInstances, [2]label{name}, s.Instances},
		two(metricHostRequests, attrPhase, "active", s.Requests),
		two(metricHostRequests, attrPhase, "suspended", s.Suspended),
		two(metricHostRequests, attrPhase, "queued", s.Queued),
		two(metricHostRequests, attrPhase, "held", s.Held),
		two(metricBreakers, attrState, string(s.Breaker), 1),
		{metricRestarts, [2]label{name}, count(s.Restarts)},
		{metricQuarantined, [2]label{name}, count(s.Quarantined)},
	}
	for code, n := range s.Errors {
		all = append(all, two(metricHostErrors, attrCode, string(code), count(n)))
	}
	for setting, n := range s.Limited {
		all = append(all, two(metricLimited, attrLimit, setting, count(n)))
	}
	return all
}

// count converts a counter for a reading.
func count(n uint64) int { return int(n) } //nolint:gosec // counts of events are far below the limit
