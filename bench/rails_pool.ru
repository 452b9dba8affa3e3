# frozen_string_literal: true

# The application of bench/rails_pool.rb. It needs DATABASE_URL and ISOLATION (fiber or thread).
ENV["RAILS_ENV"] ||= "production"
require "rails"
require "active_record/railtie"
require "action_controller/railtie"
require "reactor"

class Pages < Rails::Application
  config.root = __dir__
  config.eager_load = true
  config.secret_key_base = SecureRandom.hex(64)
  config.logger = Logger.new($stderr)
  config.log_level = :fatal
  config.active_support.isolation_level = ENV.fetch("ISOLATION").to_sym
  routes.append { get "/page/:way", to: "pages#show" }
end

class Visit < ActiveRecord::Base
end

class PagesController < ActionController::API
  rescue_from(ActiveRecord::ConnectionTimeoutError) { head :service_unavailable }

  # Two short queries, and what a request to another service takes between them.
  WORK = lambda do
    visits = Visit.count
    sleep 0.05
    [visits, Visit.maximum(:id)]
  end
  WAYS = { "queries" => WORK, "transaction" => -> { Visit.transaction { WORK.call } } }.freeze

  def show
    render json: WAYS.fetch(params[:way]).call
  end
end

Rails.application.initialize!
ActiveRecord::Schema.verbose = false
ActiveRecord::Schema.define { create_table(:visits, if_not_exists: true) }
ActiveRecord::Base.connection_handler.clear_all_connections!
run Rails.application
