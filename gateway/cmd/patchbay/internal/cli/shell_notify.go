package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxNotices bounds the notifications that are shown in each noticeInterval: a server that
	// sends more would make the prompt unusable.
	maxNotices = 20
	// noticeInterval is the time in which maxNotices may be shown.
	noticeInterval = time.Second
	// maxNoticeURI bounds a URI in a notification, in characters.
	maxNoticeURI = 300
)

// A noticeLimit limits the notifications and log messages that are shown.
type noticeLimit struct {
	mu      sync.Mutex // guards the fields below
	began   time.Time  // of the interval
	shown   int        // in the interval
	omitted int
}

// allow reports whether another notification may be shown. It shows how many were not.
func (l *noticeLimit) allow(s *screen) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.began) >= noticeInterval {
		l.began, l.shown = now, 0
	}
	if l.shown++; l.shown > maxNotices {
		l.omitted++
		return false
	}
	if l.omitted > 0 {
		s.printf("(%d messages were not shown: they arrived too fast)", l.omitted)
		l.omitted = 0
	}
	return true
}

// allowsLog reports whether another log message may be shown.
func (s *shell) allowsLog() bool { return s.logs.allow(s.base.IO.Err) }

// filter returns what the shell subscribes to.
func (s *shell) filter(c *mcp.Client) (f mcp.SubscriptionFilter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.editor == nil && !s.always {
		return f // a script shows no notifications that it has not asked for
	}
	offered := c.Capabilities()
	f.ToolsListChanged = offered.Tools != nil && offered.Tools.ListChanged
	f.PromptsListChanged = offered.Prompts != nil && offered.Prompts.ListChanged
	f.ResourcesListChanged = offered.Resources != nil && offered.Resources.ListChanged
	f.ResourceSubscriptions = slices.Clone(s.watched)
	return f
}

// listen subscribes to changes in the background, and shows them until stopListening is called.
// subscribed receives nil when the server has acknowledged the subscription, or why it has not.
func (s *shell) listen() (subscribed <-chan error) {
	s.stopListening()
	s.mu.Lock()
	c := s.client
	s.mu.Unlock()
	acknowledged := make(chan error, 1)
	f := s.filter(c)
	if !f.ToolsListChanged && !f.PromptsListChanged && !f.ResourcesListChanged && len(f.ResourceSubscriptions) == 0 {
		acknowledged <- nil
		return acknowledged
	}
	ctx, cancel := context.WithCancel(context.Background())
	var listening sync.WaitGroup
	listening.Go(func() {
		for event, err := range c.Listen(ctx, f) {
			if err != nil {
				s.refused(acknowledged, err)
				return
			}
			s.showChange(acknowledged, event)
		}
		s.refused(acknowledged, context.Canceled)
	})
	s.mu.Lock()
	s.listening = func() {
		cancel()
		listening.Wait()
	}
	s.mu.Unlock()
	return acknowledged
}

func (s *shell) stopListening() {
	s.mu.Lock()
	stop := s.listening
	s.listening = nil
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// refused reports the error that ends the subscription: to the caller of listen, or on the screen if
// the server had acknowledged it.
func (s *shell) refused(acknowledged chan<- error, err error) {
	select {
	case acknowledged <- err:
	default:
		if !errors.Is(err, context.Canceled) {
			s.base.IO.Err.printf("* notifications have ended: %s", clean(err.Error()))
		}
	}
}

// relisten renews the subscription, and waits until the server has acknowledged it.
func (s *shell) relisten() error {
	q := s.active()
	subscribed := s.listen()
	select {
	case err := <-subscribed:
		return err
	case <-q.Ask.commandContext.Done():
		return context.Cause(q.Ask.commandContext)
	}
}

// active returns the factory of the command in progress, or that of no command.
func (s *shell) active() *factory {
	if f := s.running.Load(); f != nil {
		return f
	}
	return s.idle
}

// showChange shows an event of the subscription.
func (s *shell) showChange(acknowledged chan<- error, e mcp.Event) {
	s.lists.forget(e.Kind)
	screen := s.base.IO.Err
	switch {
	case e.Kind == mcp.EventListening:
		select {
		case acknowledged <- nil:
		default:
		}
		s.mu.Lock()
		asked := s.always
		s.mu.Unlock()
		if asked {
			screen.printf("listening to: %s", cleanLine(filterText(e.Filter)))
		}
	case !s.notices.allow(screen):
	case e.Kind == mcp.EventChangesMissed:
		screen.printf("* changes may have been missed")
	default:
		screen.printf("* %s", strings.TrimSpace(e.Kind.String()+" "+shorten(cleanLine(e.URI), maxNoticeURI)))
	}
}
