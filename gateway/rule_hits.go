package gateway

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// hitHours is the number of hours for which the hits of rules are counted, a bucket for each
	// hour.
	hitHours = 24
	// maxHitRules limits the rules of a bucket: a policy has at most 1,000, and may be replaced.
	maxHitRules = 2000
)

// ruleHits counts the requests that rules of the policy matched. The lock of an EventLog guards it.
type ruleHits struct {
	hours [hitHours]hitHour // by the hour modulo hitHours
}

// A hitHour contains the hits of an hour, by rule.
type hitHour struct {
	hour  int64 // since 1970
	rules map[string]ruleHit
}

// add counts a request that a rule decided, and its dry runs, such as "deny by rule no-deletes".
func (h *ruleHits) add(now time.Time, rule string, dryRun []string) {
	hour := now.Unix() / int64(time.Hour/time.Second)
	bucket := &h.hours[hour%hitHours]
	if bucket.hour != hour {
		*bucket = hitHour{hour, map[string]ruleHit{}}
	}
	count := func(rule string, decided, dry int) {
		hit, known := bucket.rules[rule]
		if rule == "" || !known && len(bucket.rules) >= maxHitRules {
			return
		}
		bucket.rules[rule] = ruleHit{rule, hit.Decided + decided, hit.DryRun + dry}
	}
	count(rule, 1, 0)
	for _, text := range dryRun {
		if _, rule, ok := strings.Cut(text, " by rule "); ok {
			count(rule, 0, 1)
		}
	}
}

// sum returns the hits of the last 24 hours, in the order of the rules' names.
func (h *ruleHits) sum(now time.Time) []ruleHit {
	all, hour := map[string]ruleHit{}, now.Unix()/int64(time.Hour/time.Second)
	for _, bucket := range h.hours {
		if bucket.hour <= hour-hitHours {
			continue
		}
		for rule, hit := range bucket.rules {
			hit.Decided, hit.DryRun = hit.Decided+all[rule].Decided, hit.DryRun+all[rule].DryRun
			all[rule] = hit
		}
	}
	list := slices.AppendSeq([]ruleHit{}, maps.Values(all))
	slices.SortFunc(list, func(a, b ruleHit) int { return cmp.Compare(a.Rule, b.Rule) })
	return list
}

// ruleHits returns the hits of rules in the last 24 hours.
func (l *EventLog) ruleHits(now time.Time) []ruleHit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hits.sum(now)
}
