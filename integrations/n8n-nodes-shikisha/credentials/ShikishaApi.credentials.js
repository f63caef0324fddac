"use strict";

/** A server and a virtual key of it (`shikisha keys create`), sent as a bearer token. */
class ShikishaApi {
  constructor() {
    this.name = "shikishaApi";
    this.displayName = "Shikisha API";
    this.properties = [
      {
        displayName: "Server",
        name: "url",
        type: "string",
        default: "http://127.0.0.1:8100",
        description: "The address of `shikisha serve`, without /v1",
      },
      { displayName: "Key", name: "key", type: "string", typeOptions: { password: true }, default: "" },
    ];
    this.authenticate = { type: "generic", properties: { headers: { Authorization: "=Bearer {{$credentials.key}}" } } };
    this.test = { request: { baseURL: "={{$credentials.url}}", url: "/v1/models" } };
  }
}

module.exports = { ShikishaApi };
