package apps

import "github.com/patchbay-mcp/patchbay/mcp"

// A Context tells a page about the host around it. What is zero is not told.
//
// Spec: SEP-1865, Host Context.
type Context struct {
	// ToolInfo is the call whose result the page shows.
	ToolInfo *ToolInfo `json:"toolInfo,omitzero"`
	// Theme is "light" or "dark".
	Theme string `json:"theme,omitzero"`
	// Styles are the host's colours, fonts and borders.
	Styles *Styles `json:"styles,omitzero"`
	// DisplayMode is how the page is shown: [DisplayInline], [DisplayFullscreen] or [DisplayPiP].
	DisplayMode DisplayMode `json:"displayMode,omitzero"`
	// AvailableDisplayModes are those that the host has.
	AvailableDisplayModes []DisplayMode `json:"availableDisplayModes,omitempty"`
	// ContainerDimensions are the bounds of the frame.
	ContainerDimensions *Dimensions `json:"containerDimensions,omitzero"`
	// Locale is the user's language and region, such as "en-US" (BCP 47).
	Locale string `json:"locale,omitzero"`
	// TimeZone is the user's, such as "Europe/Zurich" (IANA).
	TimeZone string `json:"timeZone,omitzero"`
	// UserAgent names the host.
	UserAgent string `json:"userAgent,omitzero"`
	// Platform is "web", "desktop" or "mobile".
	Platform string `json:"platform,omitzero"`
	// DeviceCapabilities is how the user can point at things.
	DeviceCapabilities *Device `json:"deviceCapabilities,omitzero"`
	// SafeAreaInsets are the borders that something covers.
	SafeAreaInsets *Insets `json:"safeAreaInsets,omitzero"`
}

// ToolInfo is the call whose result a page shows.
type ToolInfo struct {
	Tool *mcp.Tool `json:"tool"`
}

// Styles are a host's colours, fonts and borders.
//
// Spec: SEP-1865, Theming.
type Styles struct {
	// Variables maps the specification's CSS variables, such as "--color-text-primary", to values.
	Variables map[string]string `json:"variables,omitempty"`
	// CSS is what pages may put into their own styles.
	CSS *StyleSheets `json:"css,omitzero"`
}

// StyleSheets are what pages may put into their own styles.
type StyleSheets struct {
	// Fonts holds @font-face and @import rules. Where they load from has to be among the page's ResourceDomains.
	Fonts string `json:"fonts,omitzero"`
}

// A DisplayMode is a way to show a page. Spec: SEP-1865, Display Modes.
type DisplayMode string

// The ways to show a page.
const (
	DisplayInline     DisplayMode = "inline"     // within the conversation
	DisplayFullscreen DisplayMode = "fullscreen" // on the whole window
	DisplayPiP        DisplayMode = "pip"        // floating above the rest
)

// Dimensions are the bounds of a frame, in CSS pixels. A fixed one is the host's choice, a maximum leaves it to the page up
// to there, and neither leaves it to the page.
//
// Spec: SEP-1865, Container Dimensions.
type Dimensions struct {
	Width     float64 `json:"width,omitzero"`
	MaxWidth  float64 `json:"maxWidth,omitzero"`
	Height    float64 `json:"height,omitzero"`
	MaxHeight float64 `json:"maxHeight,omitzero"`
}

// Device is how a user can point at things.
type Device struct {
	Touch bool `json:"touch"`
	Hover bool `json:"hover"`
}

// Insets are the widths of the borders that something covers, in CSS pixels.
type Insets struct {
	Top    float64 `json:"top"`
	Right  float64 `json:"right"`
	Bottom float64 `json:"bottom"`
	Left   float64 `json:"left"`
}
