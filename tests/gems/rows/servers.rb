# frozen_string_literal: true

# Servers and frameworks. An operation is a request; its handler asks the server behind the gate in plain Ruby.

# A Puma with threads of its own.
puma = lambda { |context, app|
  context.instance_exec do
    require "puma"
    require "puma/server"
    server = Puma::Server.new(app, Puma::Events.new, log_writer: Puma::LogWriter.null, min_threads: 0, max_threads: 25)
    @served = server.add_tcp_listener("127.0.0.1", 0).addr[1]
    server.run
  end
}

# By this library's server.
serve = lambda { |context, app|
  context.instance_exec do
    require "reactor/rack"
    listener = TCPServer.new("127.0.0.1", 0)
    @served = listener.addr[1]
    @server = Reactor::Rack.new(app).serve(listener)
  end
}

stop = ->(_, i) { @server.stop if i.zero? && @server }

request = ->(_, _) { Net::HTTP.get_response(URI("http://127.0.0.1:#{@served}/")).then { |answer| raise answer.body.to_s unless answer.body.include?("200 OK") } }

Gems.row "puma", requires: %w[net/http puma rack], what: "a request in each thread of Puma",
  prepare: -> { puma.call(self, ->(_) { [200, {}, [visit]] }) },
  call: request

Gems.row "puma twenty", requires: %w[net/http puma rack], verdict: :setting, what: "one request that waits for twenty answers",
  setting: "Fiber.set_scheduler(Reactor::Scheduler.new) unless Fiber.scheduler",
  advice: "once per thread of Puma; then `Fiber.schedule { … }` for each wait, and `Fiber.scheduler.run`",
  prepare: lambda {
    puma.call(self, lambda { |_|
      next [200, {}, [Array.new(20) { visit }.last]] unless mode == :set

      Fiber.set_scheduler(Reactor::Scheduler.new) unless Fiber.scheduler
      answer = nil
      Fiber.schedule { answer = visit_at_once }
      Fiber.scheduler.run
      [200, {}, [answer]]
    })
  },
  call: ->(_, i) { instance_exec(nil, i, &request) if i.zero? }

Gems.row "webrick", requires: %w[net/http webrick], what: "a request in each thread of WEBrick",
  prepare: lambda {
    server = WEBrick::HTTPServer.new(BindAddress: "127.0.0.1", Port: 0, Logger: WEBrick::Log.new(File::NULL), AccessLog: [])
    server.mount_proc("/") { |_, response| response.body = visit }
    @served = server.listeners.first.addr[1]
    Thread.new { server.start }
  },
  call: request

Gems.row "sinatra", requires: %w[net/http rack sinatra/base], what: "requests on `Reactor::Server`",
  open: lambda { |i|
    next unless i.zero?

    context = self
    serve.call(self, Class.new(Sinatra::Base) { set :environment, :production; get("/") { context.visit } })
  },
  call: request, close: stop

Gems.row "roda", requires: %w[net/http rack roda], what: "requests on `Reactor::Server`",
  open: lambda { |i|
    next unless i.zero?

    context = self
    serve.call(self, Class.new(Roda) { route { |r| r.root { context.visit } } }.freeze.app)
  },
  call: request, close: stop

Gems.row "rails", server: :postgres, requires: %w[logger net/http rack rails active_record/railtie action_controller/railtie pg], verdict: :setting,
  what: "requests on `Reactor::Server` that ask PostgreSQL by Active Record",
  setting: "config.active_support.isolation_level = :fiber",
  advice: "see [Rails](rails.md)",
  set: -> { @isolation = :fiber },
  open: lambda { |i|
    next unless i.zero?

    ENV["RAILS_ENV"] = "production"
    ENV["DATABASE_URL"] = "postgresql://tester@127.0.0.1:#{port}/postgres?pool=25&checkout_timeout=60"
    isolation, folder = @isolation || :thread, directory
    action = Class.new(ActionController::API) do
      def show = render(plain: ActiveRecord::Base.connection_pool.with_connection { |connection| connection.select_value("SELECT '#{Gate::WORD} 200 OK'") })
    end
    serve.call(self, Class.new(Rails::Application) {
      config.load_defaults 7.0
      config.root = folder
      config.eager_load = true
      config.secret_key_base = "x" * 64
      config.logger = Logger.new(nil)
      config.active_support.isolation_level = isolation
      routes.append { root to: action.action(:show) }
      initialize!
    })
  },
  call: request, close: stop

Gems.row "async-http", requires: %w[async async/http/internet reactor/async], verdict: :setting, what: "`Async::HTTP::Internet#get`",
  setting: "Fiber.set_scheduler(Async::Scheduler.new(selector: Reactor::AsyncSelector.new(Fiber.current)))",
  advice: "Async's own scheduler on reactor's selector",
  scheduler: -> { Async::Scheduler.new(selector: Reactor::AsyncSelector.new(Fiber.current)) },
  call: ->(_, _) { Async::HTTP::Internet.new.then { |internet| internet.get(url).read.tap { internet.close } } }
