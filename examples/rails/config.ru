# frozen_string_literal: true

# A Rails application in one file, for docs/rails.md. It needs DATABASE_URL, and UPSTREAM: an HTTP service that it asks.
#
#   puma -t 5:5 -b tcp://127.0.0.1:8080 examples/rails/config.ru      a scheduler for each thread of Puma
#   ruby examples/rails/async_server.rb 8080                          all requests in fibers of one thread, by Async
#   rackup -s reactor -p 8080 examples/rails/config.ru                the same by Reactor::Rack
#
#   GET  /page/WAY   waits for three things, in one of WAYS
#   GET  /events     server-sent events: each visit
#   POST /visits     a visit
#   GET  /cable      the same by Action Cable
ENV["RAILS_ENV"] ||= "production"
require "rails"
require "active_record/railtie"
require "action_controller/railtie"
require "action_cable/engine"
require "net/http"
require "reactor"

# Runs each request in a fiber. The thread keeps its scheduler.
class InFiber
  def initialize(app) = @app = app

  def call(env)
    return @app.call(env) if Fiber.current_scheduler # the server's own

    Fiber.set_scheduler(Reactor::Scheduler.new) unless Fiber.scheduler
    answer = error = nil
    Fiber.schedule do
      answer = @app.call(env)
    rescue Exception => error # rubocop:disable Lint/RescueException -- raised again below
    end
    Fiber.scheduler.run
    raise error if error

    answer
  end
end

class Example < Rails::Application
  config.load_defaults 7.0
  config.root = __dir__
  config.eager_load = true
  config.secret_key_base = SecureRandom.hex(64)
  config.logger = Logger.new($stderr)
  config.log_level = :warn
  config.active_support.isolation_level = :fiber
  config.middleware.insert_before(0, InFiber)
  config.action_cable.mount_path = "/cable"
  config.action_cable.disable_request_forgery_protection = true

  routes.append do
    get "/page/:way", to: "example#page"
    get "/events", to: "example#events"
    post "/visits", to: "example#create"
  end
end

class Visit < ActiveRecord::Base
end

class VisitsChannel < ActionCable::Channel::Base
  def subscribed = stream_from("visits")
end

class ExampleController < ActionController::API
  # One after another, in threads, in fibers of this library, in tasks of Async.
  WAYS = {
    "plain" => ->(waits) { waits.map(&:call) },
    "threads" => ->(waits) { waits.map { |wait| Thread.new(&wait) }.map(&:value) },
    "group" => ->(waits) { Reactor.group { |group| group.map(waits, &:call) } },
    "async" => ->(waits) { waits.map { |wait| Async { wait.call } }.map(&:wait) }
  }.freeze
  LISTENERS = Set.new

  def page
    waits = [
      -> { slow_query("count(*)") },
      -> { slow_query("max(id)") },
      -> { Net::HTTP.get(URI(ENV.fetch("UPSTREAM"))) }
    ]
    # The executor gives back the connection of each fiber or thread.
    in_executor = waits.map { |wait| -> { Rails.application.executor.wrap(&wait) } }
    render json: WAYS.fetch(params[:way]).call(in_executor)
  end

  def create
    visit = Visit.create!
    LISTENERS.to_a.each { |queue| queue << visit.id }
    ActionCable.server.broadcast("visits", visit.id)
    head :created
  end

  # A streaming body of Rack 3: the server calls it with the connection.
  def events
    body = lambda do |stream|
      LISTENERS << (queue = Thread::Queue.new)
      stream.write(": hello\n\n")
      loop { stream.write("data: #{queue.pop}\n\n") }
    rescue SystemCallError, IOError
      nil # the client has gone
    ensure
      LISTENERS.delete(queue)
      stream.close
    end
    self.response = Rack::Response[200, { "content-type" => "text/event-stream" }, body]
  end

  private

  def slow_query(value) = Visit.pick(Arel.sql("#{value}, pg_sleep(0.1)::text")).first
end

Rails.application.initialize!
ActionCable.server.config.cable = { "adapter" => "async" }
ActiveRecord::Schema.verbose = false
ActiveRecord::Schema.define { create_table(:visits, if_not_exists: true) }
run Rails.application
