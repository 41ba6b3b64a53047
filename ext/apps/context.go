package apps

import (
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Context describes the host to a page. Zero fields are not sent.
//
// Spec: SEP-1865, Host Context.
type Context struct {
	// ToolInfo describes the tool call whose result the page shows.
	ToolInfo *ToolInfo `json:"toolInfo,omitzero"`
	// Theme is "light" or "dark".
	Theme string `json:"theme,omitzero"`
	// Styles are the host's colours, fonts and borders.
	Styles *Styles `json:"styles,omitzero"`
	// DisplayMode is how the page is shown: [DisplayInline], [DisplayFullscreen] or [DisplayPiP].
	DisplayMode DisplayMode `json:"displayMode,omitzero"`
	// AvailableDisplayModes are the modes that the host supports.
	AvailableDisplayModes []DisplayMode `json:"availableDisplayModes,omitempty"`
	// ContainerDimensions are the dimensions of the frame.
	ContainerDimensions *Dimensions `json:"containerDimensions,omitzero"`
	// Locale is the user's language and region, such as "en-US" (BCP 47).
	Locale string `json:"locale,omitzero"`
	// TimeZone is the user's time zone, such as "Europe/Zurich" (IANA).
	TimeZone string `json:"timeZone,omitzero"`
	// UserAgent names the host.
	UserAgent string `json:"userAgent,omitzero"`
	// Platform is "web", "desktop" or "mobile".
	Platform string `json:"platform,omitzero"`
	// DeviceCapabilities describes the user's pointing devices.
	DeviceCapabilities *Device `json:"deviceCapabilities,omitzero"`
	// SafeAreaInsets are the margins of the frame that something else covers.
	SafeAreaInsets *Insets `json:"safeAreaInsets,omitzero"`
}

// ToolInfo describes the tool call whose result a page shows.
type ToolInfo struct {
	// ID is the id of the tools/call request that the host sent. The zero ID is omitted.
	ID   jsonrpc.ID `json:"id,omitzero"`
	Tool *mcp.Tool  `json:"tool"`
}

// Styles are a host's colours, fonts and borders.
//
// Spec: SEP-1865, Theming.
type Styles struct {
	// Variables maps the specification's CSS variables, such as "--color-text-primary", to values.
	Variables map[string]string `json:"variables,omitempty"`
	// CSS holds style sheets that pages may include.
	CSS *StyleSheets `json:"css,omitzero"`
}

// StyleSheets are style sheets that pages may include.
type StyleSheets struct {
	// Fonts holds @font-face and @import rules. The page's ResourceDomains must include their
	// origins.
	Fonts string `json:"fonts,omitzero"`
}

// A DisplayMode is a way to show a page.
//
// Spec: SEP-1865, Display Modes.
type DisplayMode string

// The display modes.
const (
	DisplayInline     DisplayMode = "inline"     // within the conversation
	DisplayFullscreen DisplayMode = "fullscreen" // on the whole window
	DisplayPiP        DisplayMode = "pip"        // floating above the rest
)

// Dimensions are the dimensions of a frame, in CSS pixels. The host sets Width or Height to fix a
// dimension, or MaxWidth or MaxHeight to let the page choose up to a maximum. With neither the page
// chooses freely.
//
// Spec: SEP-1865, Container Dimensions.
type Dimensions struct {
	Width     float64 `json:"width,omitzero"`
	MaxWidth  float64 `json:"maxWidth,omitzero"`
	Height    float64 `json:"height,omitzero"`
	MaxHeight float64 `json:"maxHeight,omitzero"`
}

// Device describes the user's pointing devices.
type Device struct {
	Touch bool `json:"touch"`
	Hover bool `json:"hover"`
}

// Insets are the widths of covered margins, in CSS pixels.
type Insets struct {
	Top    float64 `json:"top"`
	Right  float64 `json:"right"`
	Bottom float64 `json:"bottom"`
	Left   float64 `json:"left"`
}
