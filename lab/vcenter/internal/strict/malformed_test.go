package strict

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

const xsiBound = ` xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"`

// declaredType is what the middleware adds to an element that does not name its type.
var declaredType = regexp.MustCompile(` xmlns:declared="[^"]*" declared:type="[^"]*"`)

// envelope wraps a call the way govmomi does.
func envelope(call string) string {
	return `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"` + xsiBound + `><Body>` + call + `</Body></Envelope>`
}

const loginCall = `<Login xmlns="urn:vim25"><_this type="SessionManager">SessionManager</_this><userName>u</userName><password>p</password></Login>`

// filter is a property collector call with something in its one object set.
func filter(inner string) string {
	return envelope(`<RetrieveProperties xmlns="urn:vim25"><_this type="PropertyCollector">propertyCollector</_this><specSet>` +
		`<propSet><type>Folder</type></propSet><objectSet><obj type="Folder">group-d1</obj>` + inner + `</objectSet></specSet></RetrieveProperties>`)
}

func reconfigure(spec string) string {
	return envelope(`<ReconfigVM_Task xmlns="urn:vim25"><_this type="VirtualMachine">vm-1</_this><spec>` + spec + `</spec></ReconfigVM_Task>`)
}

func create(spec string) string {
	return envelope(`<CnsCreateVolume xmlns="urn:vsan"><_this type="CnsVolumeManager">cns-volume-manager</_this><createSpecs>` + spec + `</createSpecs></CnsCreateVolume>`)
}

func search(spec string) string {
	return envelope(`<SearchDatastore_Task xmlns="urn:vim25"><_this type="HostDatastoreBrowser">b</_this><datastorePath>[a]</datastorePath><searchSpec>` +
		spec + `</searchSpec></SearchDatastore_Task>`)
}

const permission = `<netPermission><ips>10.0.0.1</ips><permissions>READ_WRITE</permissions></netPermission>`

func access(attributes, inner string) string {
	return envelope(`<CnsConfigureVolumeACLs xmlns="urn:vsan"><_this type="CnsVolumeManager">m</_this><ACLConfigSpecs><volumeId><id>v</id></volumeId>` +
		`<accessControlSpecList` + attributes + `>` + inner + `</accessControlSpecList></ACLConfigSpecs></CnsConfigureVolumeACLs>`)
}

// TestMalformedRequestsGetVCentersFault holds one request per rule. Stock vcsim accepts most of them.
func TestMalformedRequestsGetVCentersFault(t *testing.T) {
	login := envelope(loginCall)
	ssoInstance := envelope(`<SsoAdminServiceInstance xmlns="urn:sso"><_this type="SsoAdminServiceInstance">SsoAdminServiceInstance</_this></SsoAdminServiceInstance>`)
	cluster := `<containerCluster><clusterType>KUBERNETES</clusterType><clusterId>c</clusterId><vSphereUser>u</vSphereUser>`
	block := `<backingObjectDetails xsi:type="CnsBlockBackingDetails"><capacityInMb>1</capacityInMb></backingObjectDetails>`
	for _, test := range []struct {
		name, release, path, action, body string
		want                              string // in the fault; empty if the request is fine
	}{
		{name: "a good login", body: login},
		{name: "SOAPAction in quotes", action: `"urn:vim25/8.0.3.0"`, body: login},
		{name: "older version", action: "urn:vim25/6.7", body: login},
		{name: "newer version", action: "urn:vim25/9.1.0.0", body: login},
		{name: "white space and comments between elements", body: strings.ReplaceAll(login, "><", ">\n<!-- x --><")},
		{name: "XML declaration", body: `<?xml version="1.0" encoding="UTF-8"?>` + login},
		{name: "prefixed elements", body: strings.NewReplacer("<Login xmlns=", "<v:Login xmlns:v=", "<_this", "<v:_this", "</_this", "</v:_this",
			"<userName", "<v:userName", "</userName", "</v:userName", "<password", "<v:password", "</password", "</v:password", "</Login", "</v:Login").Replace(login)},

		{name: "no SOAPAction", action: "-", body: login, want: `Unsupported version URI ""`},
		{name: "SOAPAction of nonsense", action: "urn:nonsense/0.0", body: login, want: `Unsupported version URI "urn:nonsense/0.0"`},
		{name: "SOAPAction of another service", action: "urn:pbm/2.0", body: login, want: `Unsupported version URI "urn:pbm/2.0"`},
		{name: "SOAPAction with an unknown version", action: "urn:vim25/0.0", body: login, want: `Unsupported version URI "urn:vim25/0.0"`},
		{name: "SOAPAction with a version that is none", action: "urn:vim25/latest", body: login, want: `Unsupported version URI`},
		{name: "SOAPAction without version", action: "urn:vim25", body: login, want: `Unsupported version URI`},
		{name: "vim25 at CNS", path: "/vsanHealth", action: "urn:vim25/8.0.3.0", body: create(""), want: `Unsupported version URI`},

		{name: "nothing", body: "", want: "no SOAP envelope"},
		{name: "garbage", body: "\x00\xff{}", want: "not well formed"},
		{name: "JSON", body: `{"a":1}`, want: "Unexpected text"},
		{name: "cut off", body: login[:len(login)-20], want: "not well formed"},
		{name: "cut off in a tag", body: login[:len(login)/2], want: "not well formed"},
		{name: "crossed tags", body: strings.Replace(login, "</userName><password>", "<password></userName>", 1), want: `Unexpected element tag "password" seen`},
		{name: "two roots", body: login + login, want: "Data after the SOAP envelope"},
		{name: "text behind", body: login + "x", want: "Unexpected text"},
		{name: "document type", body: `<!DOCTYPE a [<!ENTITY b "c">]>` + login, want: "document type is not allowed"},
		{name: "other encoding", body: `<?xml version="1.0" encoding="ISO-8859-1"?>` + login, want: "not well formed"},
		{name: "unknown entity", body: strings.Replace(login, ">u<", ">&b;<", 1), want: "not well formed"},
		{name: "undeclared prefix", body: strings.Replace(login, "<password>", `<password x:y="1">`, 1), want: "undeclared prefix x"},
		{name: "attribute twice", body: strings.Replace(login, `type="SessionManager"`, `type="SessionManager" type="SessionManager"`, 1), want: "attribute type twice"},
		{name: "SOAP 1.2", body: strings.Replace(login, "http://schemas.xmlsoap.org/soap/envelope/", "http://www.w3.org/2003/05/soap-envelope", 1), want: "no SOAP envelope"},
		{name: "no body", body: `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"></Envelope>`, want: "SOAP body is missing"},
		{name: "empty body", body: envelope(""), want: "SOAP body is empty"},
		{name: "header after the body", body: strings.Replace(login, "</Body>", "</Body><Header></Header>", 1), want: `Unexpected element tag "Header"`},
		{name: "two calls", body: envelope(loginCall + loginCall), want: `Unexpected element tag "Login" seen`},
		{name: "deep nesting", body: filter(strings.Repeat(`<selectSet xsi:type="TraversalSpec">`, 3000)), want: "More than 500 elements inside each other"},
		{name: "deep nesting in the header", body: `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Header>` + strings.Repeat("<a>", 100000), want: "inside each other"},
		{name: "huge", body: strings.Replace(login, ">u<", ">"+strings.Repeat("u", 2<<20)+"<", 1), want: "larger than 1048576 bytes"},

		{name: "unknown method", body: envelope(`<Foo xmlns="urn:vim25"><_this type="Folder">f</_this></Foo>`), want: "Unable to resolve WSDL method name Foo for namespace name urn:vim25"},
		{name: "data type as method", body: envelope(`<VirtualDisk xmlns="urn:vim25"></VirtualDisk>`), want: "Unable to resolve WSDL method name VirtualDisk"},
		{name: "request type as method", body: envelope(`<LoginRequestType xmlns="urn:vim25"></LoginRequestType>`), want: "Unable to resolve WSDL method name LoginRequestType"},
		{name: "method without namespace", body: strings.Replace(login, ` xmlns="urn:vim25"`, "", 1), want: "Unable to resolve WSDL method name Login"},
		{name: "method of another namespace", body: strings.Replace(login, "urn:vim25", "urn:vsan", 1), want: "Unable to resolve WSDL method name Login for namespace name urn:vsan"},
		{name: "CNS at the vim25 endpoint", action: "urn:vsan/8.0.3.0", body: create(""), want: "Unable to resolve WSDL method name CnsCreateVolume"},
		{name: "vim25 method at PBM", path: "/pbm", action: "urn:pbm/", body: strings.Replace(login, "urn:vim25", "urn:pbm", 1), want: "Unable to resolve WSDL method name Login"},
		{name: "method newer than the release", release: "7.0U3", body: envelope(`<EmitSyslogMark xmlns="urn:vim25"><_this type="DiagnosticManager">d</_this><message>m</message></EmitSyslogMark>`), want: "Unable to resolve WSDL method name EmitSyslogMark"},
		{name: "method of the release", body: envelope(`<EmitSyslogMark xmlns="urn:vim25"><_this type="DiagnosticManager">d</_this><message>m</message></EmitSyslogMark>`)},
		{name: "method newer than the version asked for", path: "/vsanHealth", action: "urn:vsan/vSAN 6.7U3",
			body: envelope(`<CnsCreateSnapshots xmlns="urn:vsan"><_this type="CnsVolumeManager">m</_this></CnsCreateSnapshots>`), want: "Unable to resolve WSDL method name CnsCreateSnapshots"},

		{name: "no object", body: envelope(`<Login xmlns="urn:vim25"></Login>`), want: "Required parameter _this is missing"},
		{name: "object not first", body: envelope(`<Login xmlns="urn:vim25"><userName>u</userName><password>p</password><_this type="SessionManager">S</_this></Login>`),
			want: "Got <userName> tag when expecting <_this> tag"},
		{name: "object without type", body: strings.Replace(login, ` type="SessionManager"`, "", 1), want: `Attribute "type" is missing`},
		{name: "object of another type", body: strings.Replace(login, `"SessionManager"`, `"Folder"`, 1), want: "while parsing MoRef for ManagedObject of type vim.SessionManager"},
		{name: "object of an unknown type", body: strings.Replace(login, `"SessionManager"`, `"Manager"`, 1), want: `Error processing attribute "type" with value "Manager"`},
		{name: "type with the wrong prefix", body: strings.Replace(login, ` type="SessionManager"`, ` xsi:type="SessionManager"`, 1), want: `Attribute "type" is missing`},

		{name: "swapped parameters", body: strings.Replace(login, "<userName>u</userName><password>p</password>", "<password>p</password><userName>u</userName>", 1),
			want: `Unexpected element tag "userName" seen`},
		{name: "missing parameter", body: strings.Replace(login, "<password>p</password>", "", 1), want: "Required parameter password is missing"},
		{name: "unknown parameter", body: strings.Replace(login, "</Login>", "<foo>x</foo></Login>", 1), want: `Unexpected element tag "foo" seen`},
		{name: "doubled parameter", body: strings.Replace(login, "<password>", "<userName>v</userName><password>", 1), want: `Unexpected element tag "userName" seen`},
		{name: "parameter of another namespace", body: strings.Replace(login, "<password>", `<password xmlns="urn:x">`, 1), want: `Unexpected element tag "password" seen`},
		{name: "element in a text", body: strings.Replace(login, ">u<", "><b>u</b><", 1), want: `Unexpected element tag "b" seen`},
		{name: "text between parameters", body: strings.Replace(login, "<password>", "x<password>", 1), want: `Unexpected text "x" seen`},
		{name: "attribute that is none", body: strings.Replace(login, "<password>", `<password secret="1">`, 1), want: `Error processing attribute "secret"`},

		{name: "traversal", body: filter(`<skip>false</skip><selectSet xsi:type="TraversalSpec"><name>a</name><type>Folder</type><path>childEntity</path></selectSet>`)},
		{name: "subtype's fields before the base's", body: filter(`<selectSet xsi:type="TraversalSpec"><type>Folder</type><path>childEntity</path><name>a</name></selectSet>`),
			want: `Unexpected element tag "name" seen`},
		{name: "no xsi:type where the declared type will do", body: filter(`<selectSet><name>a</name></selectSet>`)},
		{name: "no xsi:type and a subtype's field", body: filter(`<selectSet><name>a</name><type>Folder</type></selectSet>`),
			want: "Unexpected element tag \"type\" seen\n\nwhile parsing serialized DataObject of type vmodl.query.PropertyCollector.SelectionSpec"},
		{name: "unknown xsi:type", body: filter(`<selectSet xsi:type="Selection"></selectSet>`), want: "Unable to resolve WSDL type name Selection"},
		{name: "xsi:type of an interface of govmomi", body: filter(`<selectSet xsi:type="BaseSelectionSpec"></selectSet>`), want: "Unable to resolve WSDL type name BaseSelectionSpec"},
		{name: "xsi:type that does not fit", body: filter(`<selectSet xsi:type="VirtualDisk"></selectSet>`), want: "Type VirtualDisk is not a subtype of SelectionSpec"},
		{name: "simple xsi:type on a data object", body: filter(`<selectSet xsi:type="xsd:string">a</selectSet>`), want: "Unable to resolve WSDL type name xsd:string"},
		{name: "required field missing", body: filter(`<selectSet xsi:type="TraversalSpec"><name>a</name></selectSet>`),
			want: "Required property type is missing from data object of type TraversalSpec\nRequired property path is missing from data object of type TraversalSpec\n\nwhile parsing serialized DataObject of type vmodl.query.PropertyCollector.TraversalSpec"},
		{name: "array that must not be empty, as a parameter", body: envelope(`<QueryPerf xmlns="urn:vim25"><_this type="PerformanceManager">PerfMgr</_this></QueryPerf>`),
			want: "Required parameter querySpec is missing\n\nwhile parsing call information for method QueryPerf"},
		{name: "array that must not be empty, as a property", body: strings.Replace(filter(``), `<propSet><type>Folder</type></propSet>`, "", 1),
			want: "Required property propSet is missing from data object of type PropertyFilterSpec"},
		{name: "query for files of any kind", body: search(`<query></query><query xsi:type="FolderFileQuery"></query><details><fileType>true</fileType><fileSize>true</fileSize>` +
			`<modification>true</modification><fileOwner>true</fileOwner></details>`)},
		{name: "field that the WSDL lets out", body: search(`<details><fileType>true</fileType><fileSize>true</fileSize><modification>true</modification></details>`)},
		{name: "field that it does not", body: search(`<details><fileType>true</fileType><fileSize>true</fileSize></details>`),
			want: "Required property modification is missing from data object of type FileQueryFlags"},
		{name: "bad boolean", body: filter(`<skip>yes</skip>`), want: `Value "yes" is no xsd:boolean`},
		{name: "reference of any kind", body: filter(``)},
		{name: "reference without type", body: strings.Replace(filter(``), `<obj type="Folder">`, "<obj>", 1), want: `Attribute "type" is missing`},

		{name: "bad int", body: reconfigure(`<numCPUs>two</numCPUs>`), want: `Value "two" is no xsd:int`},
		{name: "int too large", body: reconfigure(`<numCPUs>99999999999</numCPUs>`), want: `Value "99999999999" is no xsd:int`},
		{name: "empty int", body: reconfigure(`<numCPUs></numCPUs>`), want: `is no xsd:int`},
		{name: "bad dateTime", body: reconfigure(`<createDate>today</createDate>`), want: `Value "today" is no xsd:dateTime`},
		{name: "good dateTime", body: reconfigure(`<createDate>2024-02-01T10:00:00.123Z</createDate>`)},
		{name: "unknown enumeration value", body: reconfigure(`<deviceChange xsi:type="VirtualDeviceConfigSpec"><operation>replace</operation><device xsi:type="VirtualDisk"><key>1</key><capacityInKB>1</capacityInKB></device></deviceChange>`),
			want: `Unknown value "replace" of enumeration VirtualDeviceConfigSpecOperation`},
		{name: "anything without a type", body: reconfigure(`<extraConfig xsi:type="OptionValue"><key>a</key><value>b</value></extraConfig>`), want: "has no xsi:type"},
		{name: "anything with a type", body: reconfigure(`<extraConfig xsi:type="OptionValue"><key>a</key><value xsi:type="xsd:string">b</value></extraConfig>`)},
		{name: "anything with a value of another type", body: reconfigure(`<extraConfig xsi:type="OptionValue"><key>a</key><value xsi:type="xsd:int">b</value></extraConfig>`), want: `Value "b" is no xsd:int`},
		{name: "reference to another kind", body: strings.Replace(reconfigure(``), "VirtualMachine", "HostSystem", 1), want: "while parsing MoRef for ManagedObject of type vim.VirtualMachine"},
		{name: "field newer than the release", release: "7.0U3", body: reconfigure(`<sevSnpEnabled>true</sevSnpEnabled>`), want: `Unexpected element tag "sevSnpEnabled" seen`},
		{name: "field of the release", release: "9.0", body: reconfigure(`<sevSnpEnabled>true</sevSnpEnabled>`)},
		{name: "field newer than the version asked for", release: "9.0", action: "urn:vim25/8.0.3.0", body: reconfigure(`<sevSnpEnabled>true</sevSnpEnabled>`), want: `Unexpected element tag "sevSnpEnabled" seen`},

		{name: "CNS create", path: "/vsanHealth", action: "urn:vsan/8.0.3.0",
			body: create(`<name>a</name><volumeType>BLOCK</volumeType><metadata>` + cluster + `</containerCluster></metadata>` + block)},
		{name: "CNS field newer than the release", release: "6.7U3", path: "/vsanHealth", action: "urn:vsan/vSAN 6.7U3",
			body: create(`<name>a</name><volumeType>BLOCK</volumeType><metadata>` + cluster + `<clusterFlavor>VANILLA</clusterFlavor></containerCluster></metadata>` + block),
			want: "Unexpected element tag \"clusterFlavor\" seen\n\nwhile parsing serialized DataObject of type vim.cns.ContainerCluster"},
		{name: "CNS field newer than the version asked for", path: "/vsanHealth", action: "urn:vsan/vSAN 6.7U3",
			body: create(`<name>a</name><volumeType>BLOCK</volumeType><metadata>` + cluster + `<clusterFlavor>VANILLA</clusterFlavor></containerCluster></metadata>` + block),
			want: `Unexpected element tag "clusterFlavor" seen`},
		{name: "CNS order of pyVmomi where govmomi has another", path: "/vsanHealth", action: "urn:vsan/8.0.3.0",
			body: create(`<name>a</name><volumeType>BLOCK</volumeType><metadata>` + cluster + `</containerCluster></metadata><backingObjectDetails xsi:type="CnsBlockBackingDetails">` +
				`<backingDiskObjectId>a</backingDiskObjectId><backingDiskPath>b</backingDiskPath></backingObjectDetails>`),
			want: `Unexpected element tag "backingDiskPath" seen`},
		{name: "CNS field pyVmomi has and govmomi lacks", path: "/vsanHealth", action: "urn:vsan/8.0.3.0",
			body: create(`<name>a</name><volumeType>BLOCK</volumeType><metadata>` + cluster + `</containerCluster></metadata><backingObjectDetails xsi:type="CnsBlockBackingDetails">` +
				`<backingDiskPath>b</backingDiskPath><usedCapacityInMb>1</usedCapacityInMb></backingObjectDetails>`)},
		{name: "CNS query without xsi:type, at which vcsim panics", path: "/vsanHealth", action: "urn:vsan/8.0.3.0",
			body: envelope(`<CnsQueryVolume xmlns="urn:vsan"><_this type="CnsVolumeManager">m</_this><filter></filter></CnsQueryVolume>`)},
		{name: "abstract type without xsi:type", path: "/vsanHealth", action: "urn:vsan/8.0.3.0",
			body: create(`<name>a</name><volumeType>BLOCK</volumeType><metadata>` + cluster + `</containerCluster></metadata>` + block + `<volumeSource></volumeSource>`),
			want: `Element tag "volumeSource" of abstract type CnsVolumeSource has no xsi:type`},
		{name: "CNS create of nothing", path: "/vsanHealth", action: "urn:vsan/8.0.3.0",
			body: envelope(`<CnsCreateVolume xmlns="urn:vsan"><_this type="CnsVolumeManager">m</_this></CnsCreateVolume>`), want: "Required parameter createSpecs is missing"},
		{name: "CNS update without metadata", path: "/vsanHealth", action: "urn:vsan/8.0.3.0",
			body: envelope(`<CnsUpdateVolumeMetadata xmlns="urn:vsan"><_this type="CnsVolumeManager">m</_this><updateSpecs><volumeId><id>v</id></volumeId></updateSpecs></CnsUpdateVolumeMetadata>`),
			want: "Required property metadata is missing from data object of type CnsVolumeMetadataUpdateSpec"},
		{name: "CNS access with a type", path: "/vsanHealth", action: "urn:vsan/8.0.3.0", body: access(` xsi:type="CnsNFSAccessControlSpec"`, permission)},
		{name: "CNS access without a type", path: "/vsanHealth", action: "urn:vsan/8.0.3.0", body: access("", permission),
			want: `Element tag "accessControlSpecList" of abstract type CnsAccessControlSpec has no xsi:type`},
		{name: "CNS access with two permissions, which only govmomi has", path: "/vsanHealth", action: "urn:vsan/8.0.3.0",
			body: access(` xsi:type="CnsNFSAccessControlSpec"`, permission+permission), want: `Unexpected element tag "netPermission" seen`},
		{name: "CNS field that only govmomi has, before it can be there", path: "/vsanHealth", action: "urn:vsan/8.0.3.0",
			body: create(`<name>a</name><volumeType>BLOCK</volumeType><metadata>` + cluster + `</containerCluster></metadata>` + block + `<hosts type="HostSystem">h</hosts>`),
			want: `Unexpected element tag "hosts" seen`},
		{name: "SSO header without namespace", path: "/sso-adminserver/sdk", action: "urn:sso/version2",
			body: strings.Replace(ssoInstance, "<Body>", `<Header><operationID xmlns="">o</operationID></Header><Body>`, 1), want: "SAAJ0131"},
		{name: "SSO session in a header without namespace", path: "/sso-adminserver/sdk/vsphere.local", action: "urn:sso/version2",
			body: strings.Replace(ssoInstance, "<Body>", `<Header><vcSessionCookie xmlns="">o</vcSessionCookie></Header><Body>`, 1), want: "SAAJ0131"},
		{name: "SSO header with a namespace", path: "/sso-adminserver/sdk", action: "urn:sso/version2",
			body: strings.Replace(ssoInstance, "<Body>", `<Header><o xmlns="urn:x">o</o></Header><Body>`, 1)},
		{name: "CNS datastore of another kind", path: "/vsanHealth", action: "urn:vsan/8.0.3.0",
			body: create(`<name>a</name><volumeType>BLOCK</volumeType><datastores type="Folder">f</datastores>`), want: "while parsing MoRef for ManagedObject of type vim.Datastore"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := Config{Profile: release(t, "8.0U3"), MaxBody: 1 << 20}
			if test.release != "" {
				config.Profile = release(t, test.release)
			}
			got, passed := post(t, config, test.path, test.action, test.body)
			if test.want == "" {
				if !passed {
					t.Errorf("refused with %s", got)
				}
				return
			}
			if passed || !strings.Contains(got, escape.Replace(test.want)) {
				t.Errorf("passed: %v; got %s\nwant %q", passed, got, test.want)
			}
			if !strings.Contains(got, invalidRequest) {
				t.Errorf("fault is no InvalidRequest: %s", got)
			}
		})
	}
}

// post sends a request through the middleware and returns its fault, or whether the request got through unchanged.
func post(t *testing.T, config Config, path, action, body string, headers ...string) (fault string, passed bool) {
	t.Helper()
	strict, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	if path == "" {
		path = "/sdk"
	}
	if action == "" {
		action = "urn:vim25/" + config.Profile.APIVersion
	}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	if action != "-" {
		r.Header.Set("SOAPAction", action)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	strict(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		again, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		untyped := declaredType.ReplaceAllString(string(again), "")
		passed = untyped == body && r.ContentLength == int64(len(again))
	})).ServeHTTP(w, r)
	if !passed && w.Code != http.StatusInternalServerError {
		t.Errorf("status is %d", w.Code)
	}
	return w.Body.String(), passed
}

func TestTheFaultTellsThePlaceAsVCenterDoes(t *testing.T) {
	got, _ := post(t, Config{Profile: release(t, "8.0U3")}, "", "", envelope(`<RegisterVM_Task xmlns="urn:vim25"><_this type="Folder">f</_this><name>n</name><asTemplate>false</asTemplate></RegisterVM_Task>`))
	want := "\nRequired parameter path is missing\n\nwhile parsing call information for method RegisterVM_Task\nat line 1, column 120\n\n" +
		"while parsing SOAP body\nat line 1, column 114\n\nwhile parsing SOAP envelope\nat line 1, column 0\n\n" +
		"while parsing HTTP request for method registerVm\non object of type vim.Folder\nat line 1, column 0"
	if !strings.Contains(got, "<faultstring>"+want+"</faultstring>") {
		t.Errorf("got %s", got)
	}
	if !strings.Contains(got, "<faultcode>ServerFaultCode</faultcode>") {
		t.Errorf("wrong code in %s", got)
	}
}

func TestAnUnsupportedVersionHasItsOwnFaultCode(t *testing.T) {
	got, _ := post(t, Config{Profile: release(t, "8.0U3")}, "", "urn:sms/2.0", envelope(loginCall))
	if !strings.Contains(got, "<faultcode>VersionMismatchFaultCode</faultcode>") {
		t.Errorf("got %s", got)
	}
}

func TestNewerVersionsAreRefusedOnRequest(t *testing.T) {
	for _, test := range []struct {
		path, action string
		passes       bool
	}{
		{"/sdk", "urn:vim25/8.0.3.0", true},
		{"/sdk", "urn:vim25/8.0.3.1", false},
		{"/sdk", "urn:vim25/9.1.0.0", false},
		{"/sdk", "urn:vim25/12.0", false},
		{"/sdk", "urn:vsan/9.0.0.0", false},
		{"/sdk", "urn:vsan/8.0.0.4", true},
	} {
		_, passed := post(t, Config{Profile: release(t, "8.0U3"), RefuseNewerVersion: true}, test.path, test.action, envelope(loginCall))
		if passed != test.passes {
			t.Errorf("%s passed: %v", test.action, passed)
		}
	}
}

func TestWithoutSessionOnlyLoginsPass(t *testing.T) {
	valid := func(key string) bool { return key == "good" }
	config := Config{Profile: release(t, "8.0U3"), HasSession: valid}
	read := filter("")
	pbmQuery := envelope(`<PbmQueryDefaultRequirementProfile xmlns="urn:pbm"><_this type="PbmProfileProfileManager">p</_this><hub><hubType>Datastore</hubType><hubId>d</hubId></hub></PbmQueryDefaultRequirementProfile>`)
	inHeader := strings.Replace(pbmQuery, "<Body>", `<Header><vcSessionCookie>good</vcSessionCookie></Header><Body>`, 1)
	for _, test := range []struct {
		name, path, action, body, cookie string
		passes                           bool
	}{
		{"service content", "", "", envelope(`<RetrieveServiceContent xmlns="urn:vim25"><_this type="ServiceInstance">ServiceInstance</_this></RetrieveServiceContent>`), "", true},
		{"login", "", "", envelope(loginCall), "", true},
		{"PBM content", "/pbm", "urn:pbm/", envelope(`<PbmRetrieveServiceContent xmlns="urn:pbm"><_this type="PbmServiceInstance">ServiceInstance</_this></PbmRetrieveServiceContent>`), "", true},
		{"read without session", "", "", read, "", false},
		{"read with an unknown session", "", "", read, "bad", false},
		{"read with a session", "", "", read, "good", true},
		{"read with the session in the header only", "", "", strings.Replace(read, "<Body>", `<Header><vcSessionCookie>good</vcSessionCookie></Header><Body>`, 1), "", false},
		{"current time", "", "", envelope(`<CurrentTime xmlns="urn:vim25"><_this type="ServiceInstance">ServiceInstance</_this></CurrentTime>`), "", false},
		{"PBM without session", "/pbm", "urn:pbm/", pbmQuery, "", false},
		{"PBM with the session in the header", "/pbm", "urn:pbm/", inHeader, "", true},
		{"PBM with a session", "/pbm", "urn:pbm/", pbmQuery, "good", true},
		{"CNS without session", "/vsanHealth", "urn:vsan/8.0.3.0", envelope(`<CnsDeleteVolume xmlns="urn:vsan"><_this type="CnsVolumeManager">m</_this><volumeIds><id>v</id></volumeIds><deleteDisk>true</deleteDisk></CnsDeleteVolume>`), "", false},
		{"SSO has sessions of its own", "/sso-adminserver/sdk/vsphere.local", "urn:sso/version2", envelope(`<SsoAdminServiceInstance xmlns="urn:sso"><_this type="SsoAdminServiceInstance">s</_this></SsoAdminServiceInstance>`), "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var headers []string
			if test.cookie != "" {
				headers = []string{"Cookie", "vmware_soap_session=" + test.cookie}
			}
			got, passed := post(t, config, test.path, test.action, test.body, headers...)
			if passed != test.passes {
				t.Fatalf("passed: %v; got %s", passed, got)
			}
			if !passed && !strings.Contains(got, `xsi:type="NotAuthenticated"><object type=`) {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestTheSessionTestIsAlsoForThoseBehind(t *testing.T) {
	needs, err := NeedsSession()
	if err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]bool{
		"Login": false, "LoginByToken": false, "RetrieveServiceContent": false, "PbmRetrieveServiceContent": false, "CloneSession": false,
		"RetrieveProperties": true, "RetrievePropertiesEx": true, "Fetch": true, "CnsQueryVolume": true, "CurrentTime": true,
	} {
		if got := needs(method); got != want {
			t.Errorf("%s: %v", method, got)
		}
	}
}

func TestOtherPathsAndMethodsPassUntouched(t *testing.T) {
	strict, err := New(Config{Profile: release(t, "8.0U3")})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*http.Request{
		httptest.NewRequest(http.MethodGet, "/sdk", nil),
		httptest.NewRequest(http.MethodGet, "/sdk/vimServiceVersions.xml", nil),
		httptest.NewRequest(http.MethodPost, "/rest/com/vmware/cis/session", strings.NewReader("{}")),
		httptest.NewRequest(http.MethodPost, "/sts/STSService", strings.NewReader("<x/>")),
	} {
		w := httptest.NewRecorder()
		strict(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) })).ServeHTTP(w, r)
		if w.Code != http.StatusTeapot {
			t.Errorf("%s %s: %d", r.Method, r.URL, w.Code)
		}
	}
}

func TestAProfileIsNeeded(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("no error")
	}
}

// TestStockVcsimAcceptsWhatIsRefusedHere shows why the middleware exists.
func TestStockVcsimAcceptsWhatIsRefusedHere(t *testing.T) {
	v := start(t, Config{Profile: release(t, "8.0U3"), HasSession: func(string) bool { return false }})
	for name, body := range map[string]string{
		"wrong order and unknown element": envelope(`<Login xmlns="urn:vim25"><password>p</password><foo>x</foo><userName>u</userName><_this type="SessionManager">SessionManager</_this></Login>`),
		"data after the envelope":         envelope(loginCall) + "trailing",
		"read without session":            filter(""),
		"wrong namespace":                 strings.Replace(envelope(loginCall), "urn:vim25", "urn:foo", 1),
	} {
		for kind, handler := range map[string]http.Handler{"stock": v.stock, "strict": v.strict} {
			r := httptest.NewRequest(http.MethodPost, "/sdk", strings.NewReader(body))
			r.Header.Set("SOAPAction", "urn:vim25/8.0.3.0")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if accepted := w.Code == http.StatusOK; accepted != (kind == "stock") {
				t.Errorf("%s: %s answered %d: %s", name, kind, w.Code, w.Body)
			}
		}
	}
}

func TestADeclaredTypeIsWrittenIntoTheRequest(t *testing.T) {
	strict, err := New(Config{Profile: release(t, "8.0U3")})
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		`<selectSet><name>a</name></selectSet>`: `declared:type="SelectionSpec"><name>`,
		`<selectSet/>`:                          `declared:type="SelectionSpec"/>`,
	} {
		r := httptest.NewRequest(http.MethodPost, "/sdk", strings.NewReader(filter(given)))
		r.Header.Set("SOAPAction", "urn:vim25/8.0.3.0")
		passed := ""
		strict(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			passed = string(body)
		})).ServeHTTP(httptest.NewRecorder(), r)
		if !strings.Contains(passed, want) {
			t.Errorf("%s was passed on as %q", given, passed)
		}
		decoded, err := simulator.UnmarshalBody(types.TypeFunc(), []byte(passed))
		if err != nil {
			t.Fatal(err)
		}
		selected := decoded.Body.(*types.RetrieveProperties).SpecSet[0].ObjectSet[0].SelectSet
		if _, ok := selected[0].(*types.SelectionSpec); !ok {
			t.Errorf("%s was decoded as %T", given, selected[0])
		}
	}
}
