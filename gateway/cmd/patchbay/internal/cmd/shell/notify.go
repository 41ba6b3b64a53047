package shell

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/listen"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (

	// maxNoticeURI bounds a URI in a notification, in characters.
	maxNoticeURI = 300
)

// AllowsLog reports whether another log message may be shown.
func (s *Shell) AllowsLog() bool { return s.logs.Allow(s.base.IO.Err) }

// filter returns the notifications to which the shell subscribes.
func (s *Shell) filter(c *mcp.Client) (f mcp.SubscriptionFilter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.editor == nil && !s.always {
		return f // a script must not show notifications unless it subscribes
	}
	offered := c.Capabilities()
	f.ToolsListChanged = offered.Tools != nil && offered.Tools.ListChanged
	f.PromptsListChanged = offered.Prompts != nil && offered.Prompts.ListChanged
	f.ResourcesListChanged = offered.Resources != nil && offered.Resources.ListChanged
	f.ResourceSubscriptions = slices.Clone(s.watched)
	return f
}

// listen subscribes to changes in the background, and shows them until stopListening is called.
// subscribed receives nil when the server acknowledges the subscription, and otherwise the error.
func (s *Shell) listen() (subscribed <-chan error) {
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

func (s *Shell) stopListening() {
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
func (s *Shell) refused(acknowledged chan<- error, err error) {
	select {
	case acknowledged <- err:
	default:
		if !errors.Is(err, context.Canceled) {
			s.base.IO.Err.Printf("* notifications have ended: %s", term.Clean(err.Error()))
		}
	}
}

// relisten renews the subscription, and waits until the server acknowledges it.
func (s *Shell) relisten() error {
	q := s.active()
	subscribed := s.listen()
	select {
	case err := <-subscribed:
		return err
	case <-q.Ask.CommandContext.Done():
		return context.Cause(q.Ask.CommandContext)
	}
}

// showChange shows an event of the subscription.
func (s *Shell) showChange(acknowledged chan<- error, e mcp.Event) {
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
			screen.Printf("listening to: %s", term.CleanLine(listen.FilterText(e.Filter)))
		}
	case !s.notices.Allow(screen):
	case e.Kind == mcp.EventChangesMissed:
		screen.Printf("* changes may have been missed")
	default:
		screen.Printf("* %s", strings.TrimSpace(e.Kind.String()+" "+term.Shorten(term.CleanLine(e.URI), maxNoticeURI)))
	}
}
