# frozen_string_literal: true

# Serves the application of config.ru by Async, on top of this library's selector. Falcon does the same and more.
require "async/http/endpoint"
require "async/http/server"
require "protocol/rack"
require "rack/builder"
require "reactor/async"

app = Protocol::Rack::Adapter.new(Protocol::Rack::Adapter.parse_file(File.join(__dir__, "config.ru")))
endpoint = Async::HTTP::Endpoint.parse("http://127.0.0.1:#{ARGV.fetch(0)}")
scheduler = Async::Scheduler.new(selector: Reactor::AsyncSelector.new(Fiber.current))
Fiber.set_scheduler(scheduler)
scheduler.run do
  bound = endpoint.bound
  $stdout.syswrite("listening on 127.0.0.1:#{bound.sockets.first.local_address.ip_port}\n")
  Async::HTTP::Server.new(app, bound, protocol: endpoint.protocol, scheme: "http").run
end
