package limits

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/internal/limit"
)

const (
	// maxRates limits the token buckets of callers and their tools: about 3 MiB.
	maxRates = 10_000
	// rateGroups is the number of groups that keys of evicted buckets belong to: with more groups, an
	// evicted bucket affects fewer callers.
	rateGroups = 1024
)

// A rateKey identifies the token bucket of a caller, or of the calls of a tool by a caller. When the
// configuration changes a rate, its buckets begin anew.
type rateKey struct {
	principal, server, tool string
	rate                    config.Rate
}

// A rateGroup identifies the buckets with which an evicted bucket is counted. Buckets with one rate do not
// affect buckets with another.
type rateGroup struct {
	rate config.Rate
	n    uint64
}

func newRateTable() *limit.Table[rateKey, rateGroup] {
	seed := maphash.MakeSeed()
	return limit.NewTable(maxRates, func(key rateKey) (rateGroup, bool) {
		return rateGroup{key.rate, maphash.Comparable(seed, key) % rateGroups}, true
	})
}

// checkRate takes a token, or returns the refusal of a request.
func (l *Limits) checkRate(ctx context.Context, s *Server, key *rateKey, setting string) error {
	if key.rate == (config.Rate{}) {
		return nil
	}
	wait := l.take(ctx, key)
	if wait == 0 {
		return nil
	}
	return s.Refuse(hosterr.CodeLimited, setting, wait,
		"the caller has reached %s of %v: send the request again in %v", setting, key.rate, rounded(wait))
}

// take takes a token, or returns the time until there is a token. While the store does not answer, a request takes a
// token for each process from the bucket as the process knows it, so that the process admits its share.
func (l *Limits) take(ctx context.Context, key *rateKey) (wait time.Duration) {
	rate := limitRate(key.rate)
	if l.shared.store == nil {
		return l.rates.Take(*key, rate, 1)
	}
	wait, err := l.takeShared(ctx, *key, rate)
	if err != nil {
		return l.rates.Take(*key, rate, min(l.shared.own().processes, key.rate.Burst))
	}
	return wait
}

// takeShared takes a token from the store, or from the batch that the process last took there if the rate permits
// batches of several tokens. Requests that need a batch of the same bucket wait for a single command. Batches do not
// expire: a process holds at most one batch of a bucket, and tokens that expired would be lost at each process again
// and again, although the caller stays below its rate.
func (l *Limits) takeShared(ctx context.Context, key rateKey, rate limit.Rate) (wait time.Duration, err error) {
	every := max(key.rate.Per/time.Duration(key.rate.Count), 1)
	batch := key.rate.Burst / leaseParts
	if batch < 2 {
		_, left, wait, err := l.shared.store.Take(ctx, key.text(), every, key.rate.Burst, 1)
		if err == nil {
			l.rates.Set(key, rate, left, 0)
		}
		return wait, err
	}
	for wait == 0 && err == nil && !l.rates.Spend(key, 1) {
		wait, err = l.taking.Do(ctx, key, func(ctx context.Context) (time.Duration, error) {
			if l.rates.Spend(key, 0) {
				return 0, nil // a batch was taken after Spend
			}
			ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
			defer cancel()
			taken, left, wait, err := l.shared.store.Take(ctx, key.text(), every, key.rate.Burst, batch)
			if err == nil {
				l.rates.Set(key, rate, left+taken, taken)
			}
			return wait, err
		})
	}
	return wait, err
}

// text returns the key in the store of limits.
func (k *rateKey) text() string {
	return fmt.Sprintf("%d:%s%d:%s%d:%s%v", len(k.principal), k.principal, len(k.server), k.server, len(k.tool), k.tool,
		k.rate)
}

// limitRate converts a rate of the configuration. The zero Rate, which is no limit, stays zero.
func limitRate(r config.Rate) limit.Rate {
	if r == (config.Rate{}) {
		return limit.Rate{}
	}
	return limit.Per(r.Count, r.Per, r.Burst)
}
