package inbox

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// maxDecided bounds the decisions that the page shows, of this day rather than of last week.
	maxDecided = 20
	// maxElsewhere bounds the questions of other callers that the page shows.
	maxElsewhere = 50
	// elsewhereTime bounds the time for which a question of another caller is shown, because the
	// caller may never answer.
	elsewhereTime = 15 * time.Minute
	// seenTime is the time for which an ended request is remembered, for the page that shows the
	// decision.
	seenTime = 10 * time.Minute
)

// A decision is the end of a request that waited for approval.
type decision struct {
	ID, Server, Target, Who, Answer, Approver string
	Time                                      time.Time
}

// Word returns the decision in words.
func (d *decision) Word() string { return wordOf(d.Answer) }

// Kind returns the class of the badge of the decision.
func (d *decision) Kind() string {
	switch d.Answer {
	case "deny":
		return "bad"
	case "":
		return "idle"
	}
	return "ok"
}

// note remembers the end of a request. The event of its end and the record of the approver arrive
// in any order.
func (i *inbox) note(id, answer, approver string, at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(i.seen, func(_ string, a *Approval) bool { return now.Sub(a.Expires) > seenTime })
	delete(i.pins, id)
	for n := range i.decided {
		if d := &i.decided[n]; d.ID == id {
			d.Answer, d.Approver = cmp.Or(d.Answer, answer), cmp.Or(d.Approver, approver)
			return
		}
	}
	d := decision{ID: id, Answer: answer, Approver: approver, Time: at}
	if a := i.seen[id]; a != nil {
		d.Server, d.Target, d.Who = a.Server, a.Target, a.Who()
	}
	i.decided = slices.Insert(i.decided, 0, d)
	i.decided = i.decided[:min(len(i.decided), maxDecided)]
}

// decisions returns the last decisions, the newest first.
func (i *inbox) decisions() []decision {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.decided)
}

// tooLate returns an error that names the person who decided about a request before.
func (i *inbox) tooLate(id string) string {
	for _, d := range i.decisions() {
		if d.ID == id && d.Answer != "" {
			return fmt.Sprintf("too late: %s by %s at %s", strings.ToLower(d.Word()),
				cmp.Or(d.Approver, "another person"), d.Time.Local().Format(time.TimeOnly))
		}
	}
	return "too late: the request was decided, withdrawn or has expired"
}

// An elsewhere is a question that only the client of another caller can answer.
type elsewhere struct {
	Call, Server, Method, Target, Caller, Client string
	Time                                         time.Time
}

// clientName begins the name of the client of a run in Explore, whose questions are on the desk.
const clientName = "patchbay-console "

func (i *inbox) addOther(e *event) {
	if strings.HasPrefix(e.Client, clientName) {
		return
	}
	i.removeOther(e.Call)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked = append(i.asked, elsewhere{e.Call, e.Server, e.Method, e.Target, e.Caller, e.Client, e.Time})
	i.asked = i.asked[max(len(i.asked)-maxElsewhere, 0):]
}

func (i *inbox) removeOther(call string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked = slices.DeleteFunc(i.asked, func(o elsewhere) bool { return o.Call == call })
}

func (i *inbox) forgetOthers() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked = nil
}

// others returns the questions of other callers, the oldest first.
func (i *inbox) others() (all []elsewhere) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, o := range i.asked {
		if time.Since(o.Time) < elsewhereTime {
			all = append(all, o)
		}
	}
	return all
}
